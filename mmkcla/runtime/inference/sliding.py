"""Sliding-window inference on large images, with blended overlaps."""
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def window_starts(side: int, window: int, stride: int) -> list[int]:
    """Return the window positions along a side: every ``stride`` pixels, and one that ends at the image border."""
    if side <= window:
        return [0]
    return [*range(0, side - window, stride), side - window]


def slide(run: Callable[[list[Tensor]], Tensor], image: Tensor, window: int, stride: int, batch_size: int = 1,
          progress: bool = False) -> Tensor:
    """Run a network on sliding windows and average the logits.

    The value of a pixel is the weighted mean over all windows that contain it. The weights form a pyramid with its
    maximum at the centre of the window: predictions near the border have less context, and the falling weight avoids
    visible seams. With ``stride == window`` and image sides that are multiples of it, windows do not overlap.

    Args:
        run: maps windows ``(C, window, window)`` to logits ``(windows, K, window, window)``.
        image: ``(C, H, W)``. Images smaller than a window are padded by mirroring; the padding is removed again.
        window: side of the windows, in pixels.
        stride: stride of the windows in pixels, 1 to ``window``.
        batch_size: windows per batch.
        progress: show a progress bar on a terminal.

    Returns:
        Logits ``(K, H, W)``, float32 on the CPU.
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
        batch = places[first:first + batch_size]
        logits = run([image[:, y:y + window, x:x + window] for y, x in batch]).float().cpu()
        if total is None:
            total = logits.new_zeros(logits.shape[1], *image.shape[1:])
        for (y, x), values in zip(batch, logits, strict=True):
            total[:, y:y + window, x:x + window] += values * ramp[:, None] * ramp
    total /= _cover(rows, image.shape[1], ramp)[:, None]
    total /= _cover(columns, image.shape[2], ramp)
    return total[:, :height, :width]


def _cover(starts: list[int], side: int, ramp: Tensor) -> Tensor:
    """Return the sum of the weights along one side; in 2D it is the product of both sides."""
    cover = ramp.new_zeros(side)
    for start in starts:
        cover[start:start + len(ramp)] += ramp
    return cover
