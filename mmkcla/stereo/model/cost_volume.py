"""From the features of two views to a disparity map: the volume of both, and the expectation over its planes."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def concatenation_volume(left: Tensor, right: Tensor, planes: int) -> Tensor:
    """Features of both views, the right one's shifted by every disparity (PSMNet, arXiv 1803.08669, section 3.3).

    At plane d and column x: ``left(x)`` above ``right(x − d)``; zeros where x < d, outside of the right view.

    Args:
        left, right: ``(B, C, H, W)``.
        planes: how many disparities, from 0 on, in pixels of these maps.

    Returns:
        ``(B, 2C, planes, H, W)``.
    """
    width = left.shape[-1]
    # window number i of the padded rows begins i columns from the left: a view, copied once by the flip
    windows = F.pad(right, (planes - 1, 0)).unfold(-1, width, 1)
    shifted = windows.flip(3).transpose(2, 3)
    columns = torch.arange(width, device=left.device)
    inside = (columns >= torch.arange(planes, device=left.device)[:, None])[:, None].to(left.dtype)
    return torch.cat([left[:, :, None] * inside, shifted], 1)


def upsample_logits(logits: Tensor, factor: int) -> Tensor:
    """Trilinear enlargement in which plane k is disparity ``factor·k`` and column x is pixel ``factor·x``, exactly.

    A stride-2 convolution of odd kernel is centred on every other pixel, and the volume's plane k is a shift by
    ``factor·k`` pixels; so neither of torch's two ways to align does. Beyond the last plane, row and column their
    values go on.

    Args:
        logits: ``(B, D, H, W)``.
        factor: whole number.

    Returns:
        ``(B, factor·D, factor·H, factor·W)``.
    """
    size = [factor * side for side in logits.shape[1:]]
    padded = F.pad(logits[:, None], (0, 1) * 3, mode='replicate')
    large = F.interpolate(padded, size=[side + 1 for side in size], mode='trilinear', align_corners=True)
    return large[:, 0, :size[0], :size[1], :size[2]]


def soft_argmin(logits: Tensor) -> Tensor:
    """The expectation of the disparity under a softmax over the planes, in float32 at least (section 3.5).

    Args:
        logits: ``(B, D, H, W)``: minus the cost of each disparity.

    Returns:
        ``(B, H, W)``, from 0 to D − 1.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    disparities = torch.arange(logits.shape[1], device=logits.device, dtype=dtype)
    with torch.autocast(logits.device.type, enabled=False):  # a half holds 191 pixels only to an eighth
        return torch.einsum('bdhw,d->bhw', logits.softmax(1, dtype=dtype), disparities)
