"""Common base of the attentions over the positions of one map: projections, heads, reprojection."""
from __future__ import annotations

import torch.fx
from torch import Tensor, nn

from ..errors import UserError
from .common import is_positive, score_dtype
from .record import Recorded

NORMALIZATIONS = ('softmax', 'scaling')
torch.fx.wrap('score_dtype')


class SpatialAttention(Recorded, nn.Module):
    """Keys, queries and values of every position of a map, mixed over positions, projected back and added to the map.

    Four 1×1 convolutions with biases: ``keys`` and ``queries`` to ``key_channels``, ``values`` to ``value_channels``,
    ``reprojection`` back. Subclasses say how they are mixed. As a plugin of a ResNet block, in an FPN or on its own:
    any size, any batch, shape kept.

    Args:
        in_channels: channels C of the map.
        key_channels: channels d_k of keys and queries; default C/2.
        num_heads: heads; keys and values are split evenly over them.
        value_channels: channels d_v of the values; default: as many as keys.
        normalization: ``'softmax'`` or ``'scaling'`` (by the number of positions n); see the subclass.
        residual: add the input; off: return what was retrieved alone.
        zero_init: start the reprojection at zero, so that a pretrained network's outputs are, bit for bit, what they
            were at step 0; it learns from the first step on, and the projections from the second.

    Raises:
        UserError: for heads that do not divide the channels, and unknown normalizations.
    """

    # shapes, and the start of weights
    not_recorded = frozenset({'in_channels', 'key_channels', 'value_channels', 'zero_init'})

    def __init__(self, in_channels: int, key_channels: int | None = None, num_heads: int = 1,
                 value_channels: int | None = None, normalization: str = 'softmax', residual: bool = True,
                 zero_init: bool = False) -> None:
        super().__init__()
        for name, value in (('in_channels', in_channels), ('key_channels', key_channels), ('num_heads', num_heads),
                            ('value_channels', value_channels)):
            if not is_positive(value) and not (value is None and name in ('key_channels', 'value_channels')):
                raise UserError(f'{type(self).__name__}: {name}={value!r} must be an integer above 0')
        key_channels = max(in_channels // 2, 1) if key_channels is None else key_channels
        value_channels = key_channels if value_channels is None else value_channels
        for name, width in (('key_channels', key_channels), ('value_channels', value_channels)):
            if width % num_heads:
                raise UserError(f'{type(self).__name__}: {name}={width} is not divisible by num_heads={num_heads}; '
                                'choose num_heads that divides the channels of keys and values')
        for name, value in (('residual', residual), ('zero_init', zero_init)):
            if not isinstance(value, bool):
                raise UserError(f'{type(self).__name__}: {name}={value!r} must be True or False')
        if normalization not in NORMALIZATIONS:
            raise UserError(f'{type(self).__name__}: normalization={normalization!r} is unknown; choose one of: '
                            + ', '.join(NORMALIZATIONS))
        self.in_channels = in_channels
        self.num_heads = num_heads
        self.normalization = normalization
        self.residual = residual
        self.zero_init = zero_init
        self.keys = nn.Conv2d(in_channels, key_channels, 1)
        self.queries = nn.Conv2d(in_channels, key_channels, 1)
        self.values = nn.Conv2d(in_channels, value_channels, 1)
        self.reprojection = nn.Conv2d(value_channels, in_channels, 1)
        self._zero()

    def _zero(self) -> None:
        if self.zero_init:
            for parameter in self.reprojection.parameters():
                nn.init.zeros_(parameter)

    def reset_parameters(self) -> None:
        """Initialise the weights: torch's default for convolutions, zero for the reprojection with ``zero_init``."""
        for convolution in (self.keys, self.queries, self.values, self.reprojection):
            convolution.reset_parameters()
        self._zero()

    def init_weights(self) -> None:
        """mmengine's hook for :meth:`reset_parameters`; its own rules for convolutions would undo the zero start."""
        self.reset_parameters()

    def mix(self, keys: Tensor, queries: Tensor, values: Tensor) -> Tensor:
        """Keys and queries ``(B, heads, d_k/heads, n)``, values ``(B, heads, d_v/heads, n)``, to the values' shape."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """``(B, C, H, W)`` to the same.

        Raises:
            UserError: for a map of other channels.
        """
        x = _with_channels(x, self.in_channels, type(self).__name__)
        keys, queries, values = (projection(x).flatten(2).unflatten(1, (self.num_heads, -1))
                                 for projection in (self.keys, self.queries, self.values))
        mixed = self.mix(keys, queries, values).flatten(1, 2).unflatten(2, x.shape[2:])
        retrieved = self.reprojection(mixed)
        return x + retrieved if self.residual else retrieved

    def extra_repr(self) -> str:
        return f'num_heads={self.num_heads}, normalization={self.normalization!r}, residual={self.residual}'


@torch.fx.wrap  # symbolic tracing records the check instead of taking the branch
def _with_channels(x: Tensor, channels: int, name: str) -> Tensor:
    if x.shape[1] != channels:
        raise UserError(f'{name} expects maps with {channels} channels, got {x.shape[1]}; set in_channels')
    return x


def softmax(x: Tensor, dim: int) -> Tensor:
    """Softmax computed in float32 for half-precision maps; the result has the type of ``x``."""
    return x.softmax(dim, dtype=score_dtype(x)).to(x.dtype)
