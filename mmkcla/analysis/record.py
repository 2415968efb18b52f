"""Record the layer attentions of a model with forward hooks; the layers and their states are unchanged."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..errors import UserError
from ..layers import LayerAttention
from ..layers.base import State
from ..layers.inspection import Call, Shares
from ..utils.text import listed


@dataclass
class Stage:
    """The calls of a stage, first layer first. ``number`` counts the stages from 1."""

    number: int
    calls: list[Call] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Number of layers D."""
        return len(self.calls)

    def keys(self) -> Tensor:
        """The keys of the layers, ``(D, B, G, d)``; see :meth:`LayerAttention.stage_keys`.

        Raises:
            UserError: the method does not define them, or returns something else.
        """
        layer = self.calls[-1].layer
        keys = layer.stage_keys(self.calls)
        where = f'{type(layer).__name__}.stage_keys, stage {self.number}:'
        _require_tensor(keys, where, ('D', 'B', 'G', 'd'), {0: self.depth, 1: len(self.calls[0].x)})
        return keys

    def shares(self, position: int) -> Shares:
        """The shares in the map retrieved by layer ``position`` (from 0); see :meth:`LayerAttention.layer_shares`.

        Raises:
            UserError: the method does not define them, or returns something else.
        """
        layer = self.calls[position].layer
        shares = layer.layer_shares(self.calls, position)
        where = f'{type(layer).__name__}.layer_shares, stage {self.number}, layer {position + 1}:'
        if not isinstance(shares, Shares):
            raise UserError(f'{where} expected Shares, got {type(shares).__name__}')
        tokens = shares.tokens
        if not tokens or len(set(tokens)) < len(tokens) or not set(tokens) <= set(range(position + 2)):
            raise UserError(f'{where} tokens must be distinct numbers from 1 to {position + 1}, or 0 for the carry; '
                            f'got {listed(tokens, 8) or "none"}')
        for values in (shares.weights, shares.with_norm):
            if values is not None or values is shares.weights:
                _require_tensor(values, where, ('T', 'B', 'N'), {0: len(tokens), 1: len(self.calls[position].x)})
        return shares

    def of_heads(self, position: int, name: str) -> Tensor | None:
        """``head_gates`` or ``head_temperatures`` of layer ``position``, ``(B, G)``, or None without them.

        Raises:
            UserError: the method returns something else.
        """
        call = self.calls[position]
        values = getattr(call.layer, name)(call)
        if values is not None:
            where = f'{type(call.layer).__name__}.{name}, stage {self.number}, layer {position + 1}:'
            _require_tensor(values, where, ('B', 'G'), {0: len(call.x)})
        return values


def _require_tensor(values: Any, where: str, axes: tuple[str, ...], sizes: dict[int, int]) -> None:
    if not isinstance(values, Tensor):
        raise UserError(f'{where} expected a tensor, got {type(values).__name__}')
    if values.ndim != len(axes) or any(values.shape[axis] != size for axis, size in sizes.items()):
        wanted = ', '.join(f'{name} = {sizes[axis]}' if axis in sizes else name for axis, name in enumerate(axes))
        raise UserError(f'{where} expected the shape ({wanted}), got {tuple(values.shape)}')
    if not bool(values.isfinite().all()):
        raise UserError(f'{where} the values are not all finite; check the method and the weights')


@contextmanager
def recording(model: nn.Module) -> Iterator[list[Call]]:
    """Collect the calls of all layer attentions in ``model`` while the block runs, in the order they end.

    Maps are kept, not copied: with a batch of one image that is what a training step keeps, too.
    """
    calls: list[Call] = []

    def keep(name: str):
        def hook(layer: LayerAttention, args: tuple, kwargs: dict, output: tuple[Tensor, State]) -> None:
            given = dict(zip(('x', 'state', 'shortcut'), args, strict=False)) | kwargs
            calls.append(Call(name, layer, given['x'], given.get('state'), given.get('shortcut'), *output))
        return hook

    handles = [module.register_forward_hook(keep(name), with_kwargs=True)
               for name, module in model.named_modules() if isinstance(module, LayerAttention)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def split_stages(calls: list[Call]) -> list[Stage]:
    """The calls of one forward, split into stages."""
    stages: list[Stage] = []
    for call in calls:
        if call.layer.opens_stage or not stages:
            stages.append(Stage(len(stages) + 1))
        stages[-1].calls.append(call)
    return stages
