"""Layer attention across the levels of a feature pyramid."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from ...layers import LayerAttention, layer_attention_class
from ...layers.base import State
from ...layers.record import Recorded
from ...utils.text import unknown_keyword
from ..head_widths import log_head_widths
from ..norms import build_norm, check_norm_cfg

CARRIES = ('keep', 'token')
NECK_OPTIONS = ('channels', 'depth', 'carry_channels', 'carry_stride')


class CrossLevelAttention(Recorded, nn.Module):
    """One layer attention over the levels of a pyramid, in one direction.

    Between levels, every map of the state (tensors with four or more dimensions) is resampled to the size of the next
    level: nearest for upsampling, as in FPN, and bilinear for downsampling. Pooled vectors, keys and weights are
    unchanged. For methods that need a shortcut, it is the resampled result of the previous level, and zeros at the
    first level.

    Args:
        channels: channels C of every level.
        num_levels: number of levels.
        layer_attention: ``dict(type='KCLA', …)`` with any layer attention and its options. ``layer_scale_init``
            defaults to 0 here (the pyramid is unchanged at step 0, but the scale is trained), and ``drop_path`` to 0.
        shrinks: whether the levels are processed from fine to coarse.
        carry: ``'keep'``: the levels are the layers of one stage, and each level keeps its own weight. ``'token'``:
            each level is a stage, and all previous levels enter it as one token (the carry of KCLA's Algorithm 1, with
            its stride-2 convolution from fine to coarse). Only for methods with a carry.
        norm_cfg: config of the norm layers.

    Raises:
        UserError: for fewer than two levels, unknown options, or channels that are not divisible by the head width.
    """

    # the layers have records of their own
    not_recorded = frozenset({'channels', 'num_levels', 'layer_attention', 'norm_cfg'})

    def __init__(self, channels: int, num_levels: int, layer_attention: Mapping, shrinks: bool, carry: str = 'keep',
                 norm_cfg: Mapping = dict(type='BN')) -> None:
        super().__init__()
        if not isinstance(num_levels, int) or num_levels < 2:
            raise UserError(f'a layer attention across levels needs at least two levels, got {num_levels!r}')
        if carry not in CARRIES:
            raise UserError(f'carry={carry!r} is unknown; choose one of: {", ".join(CARRIES)}')
        if not isinstance(layer_attention, Mapping):
            raise UserError(f'layer_attention={layer_attention!r} must be a dict, for example dict(type=\'KCLA\')')
        options: dict[str, Any] = dict(layer_scale_init=0., drop_path=0.) | dict(layer_attention)
        method = layer_attention_class(options.pop('type', 'KCLA'))
        if own := [name for name in NECK_OPTIONS if name in options]:
            raise UserError(f'layer_attention: {", ".join(own)} is set by the neck; remove it')
        norm_cfg = check_norm_cfg(options.pop('norm_cfg', None) or norm_cfg)
        options.setdefault('norm_layer', partial(build_norm, norm_cfg))
        try:
            layers = (method.build_stage(channels, num_levels, **options) if carry == 'keep' else
                      _single_layer_stages(method.build_stage, channels, num_levels, 2 if shrinks else 1, options))
        except TypeError as error:
            unknown = unknown_keyword(error)
            if unknown is None:
                raise
            raise method.unknown_option(unknown.strip("'")) from error
        if carry == 'token' and getattr(layers[1], 'carry', None) is None:
            raise UserError(f'carry=\'token\' needs a method with a carry between stages (KCLA); {method.__name__} has '
                            'none; use carry=\'keep\'')
        log_head_widths('layer attention across levels', method, options, cast('Any', layers))
        self.layers = cast('Sequence[LayerAttention]', layers)  # an nn.ModuleList
        self.shrinks = shrinks
        self.carry = carry

    def reset_parameters(self) -> None:
        """Initialise the parameters of all layers."""
        for layer in self.layers:
            layer.reset_parameters()

    def init_weights(self) -> None:
        """Initialise the layers. mmengine calls this after ``init_cfg`` and before loading pretrained weights."""
        self.reset_parameters()

    def step(self, i: int, x: Tensor, state: State | None, previous: Tensor | None) -> tuple[Tensor, State]:
        """Apply the layer of one level.

        Args:
            i: index of the layer, in processing order.
            x: the level's map ``(B, C, H, W)``.
            state: state of the previous level; None at the first level.
            previous: result of the previous level; None at the first level.

        Returns:
            The retrieved map ``(B, C, H, W)`` and the new state.
        """
        layer = self.layers[i]
        if state is not None:
            state = tuple(self._resample_entry(entry, x.shape[2:]) for entry in state)
        shortcut = None
        if layer.needs_shortcut:
            shortcut = x.new_zeros(()).expand_as(x) if previous is None else resampled(previous, x.shape[2:])
        return layer(x, state, shortcut)

    def _resample_entry(self, entry: Tensor, size: Sequence[int]) -> Tensor:
        if entry.ndim < 4:
            return entry
        if self.carry == 'token' and self.shrinks:  # the stride of the carry already halves the size
            if all((before + 1) // 2 == after for before, after in zip(entry.shape[-2:], size, strict=True)):
                return entry
            size = tuple(2 * side for side in size)
        return resampled(entry, size)

    def forward(self, levels: Sequence[Tensor]) -> list[Tensor]:
        """Add the retrieved map to each level. Levels ``(B, C, H, W)`` are given in processing order."""
        outs: list[Tensor] = []
        state = None
        for i, x in enumerate(levels):
            retrieved, state = self.step(i, x, state, outs[-1] if outs else None)
            outs.append(x + retrieved)
        return outs


def resampled(x: Tensor, size: Sequence[int]) -> Tensor:
    """Resample ``(…, H, W)`` to ``(…, *size)``: nearest for upsampling, bilinear for downsampling."""
    size = tuple(size)
    if tuple(x.shape[-2:]) == size:
        return x
    flat = x if x.ndim == 4 else x.flatten(1, -3)
    if any(after > before for before, after in zip(x.shape[-2:], size, strict=True)):
        flat = F.interpolate(flat, size, mode='nearest')
    else:
        flat = F.interpolate(flat, size, mode='bilinear', align_corners=False)
    return flat if x.ndim == 4 else flat.unflatten(1, x.shape[1:-2])


def _single_layer_stages(build_stage: Callable[..., nn.ModuleList], channels: int, num_levels: int, stride: int,
                   options: dict[str, Any]) -> nn.ModuleList:
    carries: list[dict[str, int]] = [{}] + [dict(carry_channels=channels, carry_stride=stride)] * (num_levels - 1)
    return nn.ModuleList(build_stage(channels, 1, **carry, **options)[0] for carry in carries)
