"""Cost volume of two feature maps, and disparity regression from its aggregated logits."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def concatenation_volume(left: Tensor, right: Tensor, planes: int) -> Tensor:
    """Concatenate left features with right features shifted by each disparity (PSMNet, arXiv 1803.08669, section 3.3).

    Plane d and column x hold ``left(x)`` and ``right(x − d)``, or zeros if x < d (outside the right view).

    Args:
        left, right: ``(B, C, H, W)``.
        planes: number of disparities, starting at 0, in pixels of these maps.

    Returns:
        ``(B, 2C, planes, H, W)``.
    """
    width = left.shape[-1]
    # window i of the padded rows starts at column i: a view, copied only once by the flip
    windows = F.pad(right, (planes - 1, 0)).unfold(-1, width, 1)
    shifted = windows.flip(3).transpose(2, 3)
    columns = torch.arange(width, device=left.device)
    inside = (columns >= torch.arange(planes, device=left.device)[:, None])[:, None].to(left.dtype)
    return torch.cat([left[:, :, None] * inside, shifted], 1)


def upsample_logits(logits: Tensor, factor: int) -> Tensor:
    """Trilinear upsampling in which plane k maps exactly to disparity ``factor·k`` and column x to pixel ``factor·x``.

    A stride-2 convolution with an odd kernel is centred on every other pixel, and plane k of the volume is a shift by
    ``factor·k`` pixels. Neither value of torch's ``align_corners`` matches this. Values beyond the last plane, row and
    column are replicated.

    Args:
        logits: ``(B, D, H, W)``.
        factor: integer upsampling factor.

    Returns:
        ``(B, factor·D, factor·H, factor·W)``.
    """
    size = [factor * side for side in logits.shape[1:]]
    padded = F.pad(logits[:, None], (0, 1) * 3, mode='replicate')
    large = F.interpolate(padded, size=[side + 1 for side in size], mode='trilinear', align_corners=True)
    return large[:, 0, :size[0], :size[1], :size[2]]


def soft_argmin(logits: Tensor) -> Tensor:
    """Expected disparity under a softmax over the planes, computed at least in float32 (section 3.5).

    Args:
        logits: ``(B, D, H, W)``, the negative cost of each disparity.

    Returns:
        ``(B, H, W)``, from 0 to D − 1.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    disparities = torch.arange(logits.shape[1], device=logits.device, dtype=dtype)
    with torch.autocast(logits.device.type, enabled=False):  # half precision resolves 191 pixels only to 1/8
        return torch.einsum('bdhw,d->bhw', logits.softmax(1, dtype=dtype), disparities)
