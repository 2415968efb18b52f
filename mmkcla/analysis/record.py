"""Record the layer attentions of a model with forward hooks; the layers and their states are unchanged."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

from ..layers import LayerAttention
from ..layers.base import State
from ..layers.inspection import Call, Shares


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
        """The keys of the layers, ``(D, B, G, d)``; see :meth:`LayerAttention.stage_keys`."""
        return self.calls[-1].layer.stage_keys(self.calls)

    def shares(self, position: int) -> Shares:
        """The shares in the map retrieved by layer ``position`` (from 0); see :meth:`LayerAttention.layer_shares`."""
        return self.calls[position].layer.layer_shares(self.calls, position)


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
