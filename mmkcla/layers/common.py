"""Common parts of the layer attentions: channel-axis convolution, head widths, drop path, checkpointing."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint
from torchvision.ops import StochasticDepth

from ..errors import UserError


def channel_kernel_size(channels: int) -> int:
    """Length of the channel-axis kernel: t = ⌊(log2 C + 1)/2⌋, made odd (ECA's rule: 3 for C=32, 5 for 256).
    """
    t = int((math.log2(channels) + 1) / 2)
    return t if t % 2 else t + 1


def is_positive(value: Any) -> bool:
    """Whether the value is an integer above zero (bools are not)."""
    return type(value) is int and value > 0


class Preferred(int):
    """A default that the user has not chosen: where it does not fit, the nearest value that does takes its place."""


def split_heads(channels: int, head_channels: int, carry_channels: int | None = None) -> int:
    """Number of heads G of ``head_channels`` channels each.

    A :class:`Preferred` width is replaced by the divisor of the channels that is nearest to it (by ratio). With
    ``carry_channels``, G then also divides these.

    Raises:
        UserError: if the channels do not divide.
    """
    if isinstance(head_channels, Preferred) and is_positive(channels):
        common = math.gcd(channels, carry_channels or channels)
        divisors = [heads for heads in range(1, common + 1) if common % heads == 0]
        return min(divisors, key=lambda heads: abs(math.log(channels / heads / head_channels)))
    if not is_positive(head_channels) or channels < 1 or channels % head_channels:
        raise UserError(f'{channels} channels are not divisible by head_channels={head_channels!r}; choose a divisor '
                        f'of {channels}')
    return channels // head_channels


# fx.wrap: these functions look at the type of a tensor, which symbolic tracing does not know; it records the call.

@torch.fx.wrap
def score_dtype(x: Tensor) -> torch.dtype:
    """The type in which scores and exponents are computed: float32, or float64 for float64 maps."""
    return torch.promote_types(x.dtype, torch.float32)


@torch.fx.wrap
def in_type_of(x: Tensor, like: Tensor) -> Tensor:
    """``x`` in the type of ``like``; for parameters, whose ``to`` symbolic tracing does not see."""
    return x.to(like.dtype)


def global_average(x: Tensor) -> Tensor:
    """Mean over H and W, ``(B, C, H, W) -> (B, C)``, in the score type (half-precision maps lose nothing here)."""
    return x.mean(dim=(2, 3), dtype=score_dtype(x))


def per_channel(scores: Tensor, head_channels: int, dtype: torch.dtype) -> Tensor:
    """Spread one number per head over its channels: ``(B, G) -> (B, G·d, 1, 1)`` of type ``dtype``."""
    return scores.to(dtype).repeat_interleave(head_channels, dim=1)[:, :, None, None]


def runs_eagerly(x: Any) -> bool:
    """Whether ``x`` is a plain tensor in eager mode: not compiled, exported, traced or transformed (``torch.func``)."""
    return (type(x) in (Tensor, nn.Parameter)
            and not (torch.compiler.is_compiling() or torch._C._is_tracing() or torch.onnx.is_in_onnx_export()
                     or torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0))


def is_observed(modules: Iterable[nn.Module]) -> bool:
    """Whether hooks or a replaced ``forward`` would miss a call of one of the modules that is not made."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return True
    return any(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
               or module._backward_pre_hooks or 'forward' in vars(module) for module in modules)


def without_autocast(x: Tensor) -> AbstractContextManager:
    """A context without autocast; devices that have none (meta) need none."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def channel_conv(pooled: Tensor, weight: Tensor) -> Tensor:
    """c1d by torch's convolution: ``(B, C) -> (B, C)``, outside of autocast."""
    half = weight.shape[-1] // 2
    if not pooled.is_cuda:
        return torch.conv1d(pooled[:, None], weight, padding=half)[:, 0]
    # cuDNN would convolve float32 in TF32; matrix products do so only on request
    windows = F.pad(pooled, (half, half)).unfold(1, weight.shape[-1], 1)
    return windows @ weight.flatten()


class ChannelConv(nn.Module):
    """c1d: a one-channel 1-D convolution along the channel axis, odd kernel, zero padding, no bias.

    Never in half precision, where keys of large activations overflow. Where the network is traced or compiled, it is
    computed as shifted products, since ``conv1d`` would follow autocast.

    Args:
        channels: length of the axis; decides the kernel size by :func:`channel_kernel_size`.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.kernel_size = channel_kernel_size(channels)
        self.weight = nn.Parameter(torch.empty(1, 1, self.kernel_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform initialisation."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, pooled: Tensor) -> Tensor:
        """``(B, C) -> (B, C)``, in the type of ``pooled``."""
        if runs_eagerly(pooled):
            with without_autocast(pooled):
                return channel_conv(pooled, self.weight.to(pooled.dtype))
        padded = F.pad(pooled, (self.kernel_size // 2, ) * 2)
        # slices instead of unfold, which ONNX does not have
        last = self.kernel_size - 1
        windows = torch.stack([padded[:, i:i - last or None] for i in range(self.kernel_size)], -1)
        return (windows * in_type_of(self.weight, pooled).flatten()).sum(-1)

    def extra_repr(self) -> str:
        return f'kernel_size={self.kernel_size}'


class HeadMixing(nn.Module):
    """Φ: a G×G matrix over the heads, no bias, Xavier-uniform initialisation, always in the score type."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform initialisation."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, scores: Tensor) -> Tensor:
        """``(B, G) -> (B, G)``."""
        return (scores[:, None, :] * in_type_of(self.weight, scores)).sum(-1)


def depthwise_value(channels: int) -> nn.Conv2d:
    """f_V: a depthwise 3×3 convolution, padding 1, no bias."""
    return nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)


class ChannelAffine(nn.Module):
    """``scale · x + shift`` per channel: a batch norm in evaluation, without its statistics; ``scale`` None is 1."""

    def __init__(self, scale: Tensor | None, shift: Tensor) -> None:
        super().__init__()
        self.scale = None if scale is None else nn.Parameter(scale, requires_grad=False)
        self.shift = nn.Parameter(shift, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        shift = in_type_of(self.shift, x)[:, None, None]
        return x + shift if self.scale is None else torch.addcmul(shift, x, in_type_of(self.scale, x)[:, None, None])


def affine_of(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """Scale and shift of a batch norm in evaluation, ``(C,)`` each."""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -norm.running_mean * scale
    return scale.detach(), (shift if norm.bias is None else shift + norm.bias).detach()


def make_drop_path(drop_path: float) -> nn.Module:
    """Stochastic depth per sample with probability ``drop_path`` in [0, 1).

    Raises:
        UserError: for a probability outside the range.
    """
    if not isinstance(drop_path, (int, float)) or not 0 <= drop_path < 1:
        raise UserError(f'drop_path={drop_path!r} is not a probability in [0, 1)')
    return StochasticDepth(drop_path, mode='row') if drop_path > 0 else nn.Identity()


@contextmanager
def _batch_norm_statistics_kept(module: nn.Module) -> Iterator[None]:
    """Let batch norms in training use the batch's own statistics without updating the running ones."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.training]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0., None
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count


def checkpointed(module: nn.Module, function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function`` (a forward of ``module``), keeping only its inputs and recomputing it in the backward pass.

    Non-reentrant, as DDP wants it; and unlike a bare ``torch.utils.checkpoint`` the recomputation does not update the
    batch norms' running statistics a second time.
    """
    if torch.compiler.is_compiling():  # dynamo takes no context function
        return checkpoint(function, *args, use_reentrant=False)
    return checkpoint(function, *args, use_reentrant=False,
                      context_fn=lambda: (nullcontext(), _batch_norm_statistics_kept(module)))
