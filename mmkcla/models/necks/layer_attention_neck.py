"""A layer attention across the levels of a pyramid, and Efficient Attention inside them."""
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
    """The levels of a pyramid are the layers: a layer attention runs across them and is added to each.

    Follows any FPN in a list: ``neck=[dict(type='FPN', …), dict(type='mmkcla.LayerAttentionNeck', in_channels=256)]``;
    number, widths and sizes of the levels stay. At step 0 it changes nothing (``layer_scale_init=0.``, ours).

    Args:
        in_channels: channels of the levels, all alike: a number, or a list of equal ones.
        num_levels: how many levels come in; of a list, its length.
        layer_attention: any layer attention and its options, see :class:`CrossLevelAttention`.
        direction: ``'coarse_to_fine'``, ``'fine_to_coarse'``, or ``'both'``: the first, then the second over its
            results.
        carry: ``'keep'`` or ``'token'`` (KCLA's Algorithm 1), see :class:`CrossLevelAttention`.
        norm_cfg: the norms of the layers.
        init_cfg: of mmengine; by default every layer starts by its own rules.

    Raises:
        UserError: for unequal widths, fewer than two levels, and unknown options.
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
                raise UserError(f'LayerAttentionNeck: in_channels={widths} must be equal, the levels are layers of one '
                                'attention; put an FPN before it')
            if num_levels not in (None, len(widths)):
                raise UserError(f'LayerAttentionNeck: num_levels={num_levels}, but in_channels names {len(widths)}')
            num_levels = len(widths)
        in_channels = widths[0]
        if num_levels is None:
            num_levels = 5
        self.in_channels = in_channels
        self.num_levels = num_levels
        self.passes = ModuleList(CrossLevelAttention(in_channels, num_levels, layer_attention, shrinks, carry, norm_cfg)
                                 for shrinks in DIRECTIONS[direction])

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Levels from fine to coarse, each ``(B, C, H, W)``, to the same.

        Raises:
            UserError: if their number or widths are not those it was built for.
        """
        check_levels(self, inputs, [self.in_channels] * self.num_levels)
        levels = list(inputs)
        for attention in self.passes:
            levels = attention(levels) if attention.shrinks else attention(levels[::-1])[::-1]
        return tuple(levels)


@MODELS.register_module()
class EfficientAttentionNeck(BaseModule):
    """:class:`mmkcla.layers.EfficientAttention` on chosen levels of a pyramid, as in arXiv 1812.01243.

    Shapes and number of the levels stay; at step 0 it changes nothing.

    Args:
        in_channels: channels of the levels: a list, or one number for ``num_levels`` of them.
        num_levels: how many levels come in, where ``in_channels`` is a number.
        levels: indices of those attended to, fine to coarse; None: all.
        key_channels, num_heads, value_channels, normalization, zero_init: of EfficientAttention; channels are by
            default half of the level's.
        attention: ``'EfficientAttention'``, or ``'DotProductAttention2d'`` to compare it with.
        init_cfg: of mmengine.

    Raises:
        UserError: for levels that are not there, and heads that do not divide.
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
            raise UserError(f'EfficientAttentionNeck: num_levels={num_levels}, but in_channels names {count}')
        levels = range(count) if levels is None else levels
        if not isinstance(levels, Sequence) or not levels or not all(
                type(level) is int and 0 <= level < count for level in levels) or len(set(levels)) != len(levels):
            shown = tuple(levels) if isinstance(levels, (list, tuple)) else levels
            raise UserError(f'EfficientAttentionNeck: levels={shown!r} must be different indices of {count} '
                            f'levels, 0 (finest) to {count - 1}')
        self.attentions = ModuleDict({str(level): ATTENTIONS[attention](
            self.in_channels[level], key_channels, num_heads, value_channels, normalization, zero_init=zero_init)
            for level in levels})

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Levels from fine to coarse, each ``(B, C, H, W)``, to the same.

        Raises:
            UserError: if their number or widths are not those it was built for.
        """
        check_levels(self, inputs, self.in_channels)
        return tuple(self.attentions[str(i)](x) if str(i) in self.attentions else x for i, x in enumerate(inputs))


def check_widths(neck: nn.Module, in_channels: Any) -> list[int]:
    """The channels of the levels, as a list; of a single number, one.

    Raises:
        UserError: if they are not positive whole numbers.
    """
    widths = list(in_channels) if isinstance(in_channels, (list, tuple)) else [in_channels]
    if not widths or not all(map(is_positive, widths)):
        raise UserError(f'{type(neck).__name__}: in_channels={in_channels!r} must be a number of channels, or a list '
                        'of them, one a level')
    return widths


def check_levels(neck: nn.Module, inputs: Sequence[Tensor] | Tensor, channels: Sequence[int]) -> None:
    """See that the maps are as many and as wide as said.

    Raises:
        UserError: with what came and what was expected.
    """
    if isinstance(inputs, Tensor) or [x.shape[1] for x in inputs] != list(channels):
        got = 'a single map' if isinstance(inputs, Tensor) else (
            f'{len(inputs)} levels of {", ".join(str(x.shape[1]) for x in inputs)} channels')
        raise UserError(f'{type(neck).__name__} was built for {len(channels)} levels of '
                        f'{", ".join(map(str, channels))} channels, got {got}; set num_levels and in_channels to what '
                        'the part before it gives')
