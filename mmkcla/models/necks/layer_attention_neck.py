"""Necks with layer attention across pyramid levels, and with Efficient Attention within levels."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.model import BaseModule, ModuleDict, ModuleList
from torch import Tensor, nn

from ...errors import UserError
from ...layers import DotProductAttention2d, EfficientAttention
from ...layers.common import is_positive
from ...registry import MODELS
from .cross_level import CrossLevelAttention

DIRECTIONS = {'coarse_to_fine': (False, ), 'fine_to_coarse': (True, ), 'both': (False, True)}
ATTENTIONS = {'EfficientAttention': EfficientAttention, 'DotProductAttention2d': DotProductAttention2d}


@MODELS.register_module()
class LayerAttentionNeck(BaseModule):
    """Layer attention across pyramid levels: each level is a layer, and the retrieved map is added to it.

    Use it after any FPN: ``neck=[dict(type='FPN', …), dict(type='mmkcla.LayerAttentionNeck', in_channels=256)]``. The
    number, width and size of the levels are unchanged. At step 0 the output equals the input (``layer_scale_init=0.``,
    our choice).

    Args:
        in_channels: channels of the levels: one number, or a list of equal numbers.
        num_levels: number of levels; defaults to 5, or to the length of ``in_channels`` if it is a list.
        layer_attention: any layer attention and its options, see :class:`CrossLevelAttention`.
        direction: ``'coarse_to_fine'``, ``'fine_to_coarse'``, or ``'both'``: coarse to fine, then fine to coarse on
            the result.
        carry: ``'keep'`` or ``'token'`` (KCLA's Algorithm 1), see :class:`CrossLevelAttention`.
        norm_cfg: config of the norm layers.
        init_cfg: mmengine's; by default each layer initialises its own parameters.

    Raises:
        UserError: for unequal widths, fewer than two levels, or unknown options.
    """

    def __init__(self, in_channels: int | Sequence[int], num_levels: int | None = None,
                 layer_attention: Mapping = dict(type='KCLA'), direction: str = 'coarse_to_fine', carry: str = 'keep',
                 norm_cfg: Mapping = dict(type='BN'), init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        if not isinstance(direction, str) or direction not in DIRECTIONS:
            raise UserError(f'direction={direction!r} is unknown; choose one of: {", ".join(DIRECTIONS)}')
        widths = check_widths(self, in_channels)
        if len(widths) > 1 or not isinstance(in_channels, int):
            if len(set(widths)) != 1:
                raise UserError(f'LayerAttentionNeck: in_channels={widths} must be equal; add an FPN before this neck')
            if num_levels not in (None, len(widths)):
                raise UserError(f'LayerAttentionNeck: num_levels={num_levels}, but in_channels has {len(widths)} '
                                'entries')
            num_levels = len(widths)
        in_channels = widths[0]
        if num_levels is None:
            num_levels = 5
        self.in_channels = in_channels
        self.num_levels = num_levels
        self.passes = ModuleList(CrossLevelAttention(in_channels, num_levels, layer_attention, shrinks, carry, norm_cfg)
                                 for shrinks in DIRECTIONS[direction])

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Apply the attention to levels ``(B, C, H, W)``, fine to coarse. Shapes are unchanged.

        Raises:
            UserError: if the number or widths of the levels differ from the configured ones.
        """
        check_levels(self, inputs, [self.in_channels] * self.num_levels)
        levels = list(inputs)
        for attention in self.passes:
            levels = attention(levels) if attention.shrinks else attention(levels[::-1])[::-1]
        return tuple(levels)


@MODELS.register_module()
class EfficientAttentionNeck(BaseModule):
    """:class:`mmkcla.layers.EfficientAttention` on selected levels of a pyramid, as in arXiv 1812.01243.

    The number and shapes of the levels are unchanged. At step 0 the output equals the input.

    Args:
        in_channels: channels of the levels: a list, or one number for all ``num_levels`` levels.
        num_levels: number of levels if ``in_channels`` is a number; defaults to 5.
        levels: indices of the levels with attention, 0 is the finest. None: all levels.
        key_channels, num_heads, value_channels, normalization, zero_init: see EfficientAttention. The channels default
            to half of those of the level.
        attention: ``'EfficientAttention'``, or ``'DotProductAttention2d'`` for comparison.
        init_cfg: mmengine's.

    Raises:
        UserError: for invalid levels, or channels that are not divisible by the number of heads.
    """

    def __init__(self, in_channels: int | Sequence[int], num_levels: int | None = None,
                 levels: Sequence[int] | None = None, key_channels: int | None = None, num_heads: int = 1,
                 value_channels: int | None = None, normalization: str = 'softmax', zero_init: bool = True,
                 attention: str = 'EfficientAttention', init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        if not isinstance(attention, str) or attention not in ATTENTIONS:
            raise UserError(f'attention={attention!r} is unknown; choose one of: {", ".join(ATTENTIONS)}')
        widths = check_widths(self, in_channels)
        if num_levels is not None and (not is_positive(num_levels)):
            raise UserError(f'EfficientAttentionNeck: num_levels={num_levels!r} must be a number of levels')
        if isinstance(in_channels, int):
            widths *= 5 if num_levels is None else num_levels
        self.in_channels = widths
        count = len(self.in_channels)
        if num_levels not in (None, count):
            raise UserError(f'EfficientAttentionNeck: num_levels={num_levels}, but in_channels has {count} entries')
        levels = range(count) if levels is None else levels
        if not isinstance(levels, Sequence) or not levels or not all(
                type(level) is int and 0 <= level < count for level in levels) or len(set(levels)) != len(levels):
            shown = tuple(levels) if isinstance(levels, (list, tuple)) else levels
            raise UserError(f'EfficientAttentionNeck: levels={shown!r} must be distinct indices of {count} '
                            f'levels, from 0 (finest) to {count - 1}')
        self.attentions = ModuleDict({str(level): ATTENTIONS[attention](
            self.in_channels[level], key_channels, num_heads, value_channels, normalization, zero_init=zero_init)
            for level in levels})

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Apply the attention to levels ``(B, C, H, W)``, fine to coarse. Shapes are unchanged.

        Raises:
            UserError: if the number or widths of the levels differ from the configured ones.
        """
        check_levels(self, inputs, self.in_channels)
        return tuple(self.attentions[str(i)](x) if str(i) in self.attentions else x for i, x in enumerate(inputs))


def check_widths(neck: nn.Module, in_channels: Any) -> list[int]:
    """Return the channels of the levels as a list; a single number becomes a list with one entry.

    Raises:
        UserError: if they are not positive integers.
    """
    widths = list(in_channels) if isinstance(in_channels, (list, tuple)) else [in_channels]
    if not widths or not all(map(is_positive, widths)):
        raise UserError(f'{type(neck).__name__}: in_channels={in_channels!r} must be a number of channels, or a list '
                        'with one number per level')
    return widths


def check_levels(neck: nn.Module, inputs: Sequence[Tensor] | Tensor, channels: Sequence[int]) -> None:
    """Check the number and widths of the maps.

    Raises:
        UserError: if they differ from ``channels``.
    """
    if isinstance(inputs, Tensor) or [x.shape[1] for x in inputs] != list(channels):
        got = 'a single map' if isinstance(inputs, Tensor) else (
            f'{len(inputs)} levels of {", ".join(str(x.shape[1]) for x in inputs)} channels')
        raise UserError(f'{type(neck).__name__} was built for {len(channels)} levels of '
                        f'{", ".join(map(str, channels))} channels, got {got}; set num_levels and in_channels to match '
                        'the previous module')
