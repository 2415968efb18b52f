"""Undo the resize from the network's output size to the original image size."""
from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

_CLOSE = 1e-3  # mean difference of probabilities


def scores_at(scores: Tensor, size: tuple[int, int]) -> tuple[Tensor, bool]:
    """Recover the foreground probabilities before mmseg resized the logits bilinearly to the size of ``scores``.

    With U the matrices of linear interpolation, mmseg computes ``L = U_h X U_wᵀ``. ``X`` is solved for by least
    squares. It is exact up to rounding, except for a few pixels if many probabilities are exactly 1, because their
    logits are lost. Resizing the probabilities bilinearly would smooth out small speckles and raise the IoU by some
    tenths of a point. It is used only where it reproduces ``scores`` better, and for images smaller than ``size``.

    Args:
        scores: ``(H, W)`` probabilities, the sigmoid of the resized logits. float64 is more accurate near 1.
        size: ``(h, w)`` of the network's output.

    Returns:
        ``(h, w)`` probabilities on the CPU, and whether resizing them reproduces ``scores``.
    """
    scores = scores.cpu()
    if tuple(scores.shape) == size:
        return scores, True
    best = F.interpolate(scores[None, None], size=size, mode='bilinear', align_corners=False)[0, 0]
    again = F.interpolate(best[None, None], size=scores.shape, mode='bilinear', align_corners=False)[0, 0]
    error = float((again - scores).abs().mean())
    if any(there < back for there, back in zip(scores.shape, size, strict=True)):
        return best, False
    kind = torch.finfo(scores.dtype)
    logits = scores.clamp(kind.tiny, 1 - kind.eps / 2).double().logit()
    for align_corners in (False, True):
        (up_h, down_h), (up_w, down_w) = (_interpolation(back, there, align_corners)
                                          for there, back in zip(scores.shape, size, strict=True))
        found = down_h @ logits @ down_w.T
        off = float(((up_h @ found @ up_w.T).sigmoid() - scores).abs().mean())
        if off < error:
            best, error = found.sigmoid(), off
        if error < _CLOSE:
            break
    return best, error < _CLOSE


def mask_at(truth: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize labels ``(H, W)`` to ``size`` by nearest pixel centre."""
    if tuple(truth.shape) == size:
        return truth
    return F.interpolate(truth[None, None].float(), size=size, mode='nearest-exact')[0, 0].to(truth.dtype)


@lru_cache(maxsize=64)
def _interpolation(source: int, target: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """Matrix ``(target, source)`` of linear interpolation along one axis, and its pseudo-inverse."""
    up = F.interpolate(torch.eye(source, dtype=torch.float64)[None], size=target, mode='linear',
                       align_corners=align_corners)[0].T
    return up, torch.linalg.pinv(up)
