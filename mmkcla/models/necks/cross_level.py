"""A layer attention whose layers are the levels of a pyramid."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from ...layers import LayerAttention, layer_attention_class
from ...layers.base import State
from ...utils.text import unknown_keyword
from ..norms import build_norm, check_norm_cfg

CARRIES = ('keep', 'token')
OF_THE_NECK = ('channels', 'depth', 'carry_channels', 'carry_stride')


class CrossLevelAttention(nn.Module):
    """Layers of one attention for levels taken in one direction, and what brings the state from level to level.

    Between levels every map of the state (tensors of four and more dimensions) is resampled to the next level's size:
    nearest up, as FPN does, bilinear down; pooled vectors, keys and weights stay. The shortcut of methods that need it
    is the previous level's result, resampled; at the first level, zeros.

    Args:
        channels: channels C of every level.
        num_levels: how many.
        layer_attention: ``dict(type='KCLA', …)`` with any layer attention and its options. Where it does not say
            otherwise, ``layer_scale_init`` is 0 (the pyramid is unchanged at step 0, and learns) and ``drop_path`` 0.
        shrinks: whether the levels come from fine to coarse.
        carry: ``'keep'``: the levels are the layers of one stage, and all keep their weights. ``'token'``: each level
            is a stage of its own, and what came before enters it as one token (the carry of KCLA's Algorithm 1, with
            its convolution of stride 2 from fine to coarse); for methods that have a carry.
        norm_cfg: the norms of the layers.

    Raises:
        UserError: for fewer than two levels, unknown options, and channels that the heads do not divide.
    """

    def __init__(self, channels: int, num_levels: int, layer_attention: Mapping, shrinks: bool, carry: str = 'keep',
                 norm_cfg: Mapping = dict(type='BN')) -> None:
        super().__init__()
        if not isinstance(num_levels, int) or num_levels < 2:
            raise UserError(f'a layer attention across levels needs at least two of them, got {num_levels!r}')
        if carry not in CARRIES:
            raise UserError(f'carry={carry!r} is unknown; choose one of: {", ".join(CARRIES)}')
        if not isinstance(layer_attention, Mapping):
            raise UserError(f'layer_attention={layer_attention!r} must be a dict, as in dict(type=\'KCLA\')')
        options: dict[str, Any] = dict(layer_scale_init=0., drop_path=0.) | dict(layer_attention)
        method = layer_attention_class(options.pop('type', 'KCLA'))
        if own := [name for name in OF_THE_NECK if name in options]:
            raise UserError(f'layer_attention: {", ".join(own)} is what the neck sets itself; leave it out')
        norm_cfg = check_norm_cfg(options.pop('norm_cfg', None) or norm_cfg)
        options.setdefault('norm_layer', partial(build_norm, norm_cfg))
        try:
            layers = (method.build_stage(channels, num_levels, **options) if carry == 'keep' else
                      _stages_of_one(method.build_stage, channels, num_levels, 2 if shrinks else 1, options))
        except TypeError as error:
            unknown = unknown_keyword(error)
            if unknown is None:
                raise
            raise method.unknown_option(unknown.strip("'")) from error
        if carry == 'token' and getattr(layers[1], 'carry', None) is None:
            raise UserError(f'carry=\'token\' needs a method that carries over from stage to stage (KCLA); '
                            f'{method.__name__} starts anew: use carry=\'keep\'')
        self.layers = cast('Sequence[LayerAttention]', layers)  # an nn.ModuleList
        self.shrinks = shrinks
        self.carry = carry

    def reset_parameters(self) -> None:
        """Draw the layers' own initial weights."""
        for layer in self.layers:
            layer.reset_parameters()

    def init_weights(self) -> None:
        """mmengine calls it after the rules of an ``init_cfg`` and before its pretrained weights."""
        self.reset_parameters()

    def step(self, i: int, x: Tensor, state: State | None, previous: Tensor | None) -> tuple[Tensor, State]:
        """Attend from one level.

        Args:
            i: which layer, in the direction.
            x: the level's map ``(B, C, H, W)``.
            state: of the previous level; None at the first.
            previous: the result at the previous level; None at the first.

        Returns:
            What is retrieved, ``(B, C, H, W)``, and the state.
        """
        layer = self.layers[i]
        if state is not None:
            state = tuple(self._brought(entry, x.shape[2:]) for entry in state)
        shortcut = None
        if layer.needs_shortcut:
            shortcut = x.new_zeros(()).expand_as(x) if previous is None else resampled(previous, x.shape[2:])
        return layer(x, state, shortcut)

    def _brought(self, entry: Tensor, size: Sequence[int]) -> Tensor:
        if entry.ndim < 4:
            return entry
        if self.carry == 'token' and self.shrinks:  # the carry's own stride makes the step, where the sizes allow it
            if all((before + 1) // 2 == after for before, after in zip(entry.shape[-2:], size, strict=True)):
                return entry
            size = tuple(2 * side for side in size)
        return resampled(entry, size)

    def forward(self, levels: Sequence[Tensor]) -> list[Tensor]:
        """Levels in this direction, each ``(B, C, H, W)``, to the same with what was retrieved added."""
        outs: list[Tensor] = []
        state = None
        for i, x in enumerate(levels):
            retrieved, state = self.step(i, x, state, outs[-1] if outs else None)
            outs.append(x + retrieved)
        return outs


def resampled(x: Tensor, size: Sequence[int]) -> Tensor:
    """``(…, H, W)`` to ``(…, *size)``: nearest where it grows, bilinear where it shrinks."""
    size = tuple(size)
    if tuple(x.shape[-2:]) == size:
        return x
    flat = x if x.ndim == 4 else x.flatten(1, -3)
    if any(after > before for before, after in zip(x.shape[-2:], size, strict=True)):
        flat = F.interpolate(flat, size, mode='nearest')
    else:
        flat = F.interpolate(flat, size, mode='bilinear', align_corners=False)
    return flat if x.ndim == 4 else flat.unflatten(1, x.shape[1:-2])


def _stages_of_one(build_stage: Callable[..., nn.ModuleList], channels: int, num_levels: int, stride: int,
                   options: dict[str, Any]) -> nn.ModuleList:
    carries: list[dict[str, int]] = [{}] + [dict(carry_channels=channels, carry_stride=stride)] * (num_levels - 1)
    return nn.ModuleList(build_stage(channels, 1, **carry, **options)[0] for carry in carries)
