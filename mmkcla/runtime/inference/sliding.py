"""A network over an image larger than it: windows that overlap, joined without seams."""
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def window_starts(side: int, window: int, stride: int) -> list[int]:
    """Where windows start along a side: every ``stride`` pixels, and one that ends with the image."""
    if side <= window:
        return [0]
    return [*range(0, side - window, stride), side - window]


def slide(run: Callable[[list[Tensor]], Tensor], image: Tensor, window: int, stride: int, batch_size: int = 1,
          progress: bool = False) -> Tensor:
    """Run a network in windows and average what it gives.

    A pixel's value is the mean over the windows that see it, weighted by a pyramid that is highest in a window's
    middle: towards its edge a window knows less, and there its weight fades, so that no seam shows. With
    ``stride == window`` and sides that are multiples of it, each window stands alone.

    Args:
        run: windows ``(C, window, window)`` to logits ``(windows, K, window, window)``.
        image: ``(C, H, W)``. What is smaller than a window is mirrored up to its size, and cut off again.
        window: side of the windows, in pixels.
        stride: from one window to the next, 1 to ``window``.
        batch_size: windows at a time.
        progress: show a bar on a terminal.

    Returns:
        logits ``(K, H, W)``, float32 on the CPU.
    """
    from tqdm import tqdm
    height, width = image.shape[1:]
    if min(height, width) < window:
        missing = [(0, max(0, window - side)) for side in (height, width)]
        image = torch.from_numpy(np.pad(image.numpy(), [(0, 0), *missing], mode='symmetric'))
    ramp = torch.arange(1, window + 1).minimum(torch.arange(window, 0, -1)).float()
    ramp /= ramp.max()
    rows, columns = (window_starts(side, window, stride) for side in image.shape[1:])
    places = [(y, x) for y in rows for x in columns]
    total: Tensor | None = None
    for first in tqdm(range(0, len(places), batch_size), unit='batch', leave=False,
                      disable=None if progress and len(places) > batch_size else True):
        some = places[first:first + batch_size]
        logits = run([image[:, y:y + window, x:x + window] for y, x in some]).float().cpu()
        if total is None:
            total = logits.new_zeros(logits.shape[1], *image.shape[1:])
        for (y, x), values in zip(some, logits, strict=True):
            total[:, y:y + window, x:x + window] += values * ramp[:, None] * ramp
    total /= _cover(rows, image.shape[1], ramp)[:, None]
    total /= _cover(columns, image.shape[2], ramp)
    return total[:, :height, :width]


def _cover(starts: list[int], side: int, ramp: Tensor) -> Tensor:
    """Sum of the weights along a side; over the image it is the product of both sides'."""
    cover = ramp.new_zeros(side)
    for start in starts:
        cover[start:start + len(ramp)] += ramp
    return cover
