"""How converted weights fit the network that they are for."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from ...utils.text import listed
from ..matching import compare
from .names import StateDict
from .sources import PLAIN_SOURCES

COUNTER = 'num_batches_tracked'


@dataclass
class Fit:
    """By our names: what of the network came from the file and what did not.

    Attributes:
        matched: equal in name and shape.
        kept: the network's that a plain ResNet cannot have, the layer attentions above all; they keep their start.
        missing: the network's that the file should have.
        unexpected: the file's that the network does not have.
        mismatched: of different shapes, each with the file's and the network's.
        unchecked: the file's that belong to no part of what was built to compare with (a detector's neck and heads).
    """

    matched: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing but what is ``kept`` or ``unchecked`` is left over on either side."""
        return bool(self.matched) and not (self.missing or self.unexpected or self.mismatched)

    @property
    def lost(self) -> list[str]:
        """What would not load and is not written: ``unexpected`` and ``mismatched``."""
        return [*self.unexpected, *self.mismatched]

    def problems(self) -> str:
        """In one line, for a fit that is not complete."""
        parts = [f'{len(names)} {kind} ({listed(names)})' for kind, names in (
            ('missing', self.missing), ('unexpected', self.unexpected),
            ('mismatched in shape', list(self.mismatched.values()))) if names]
        return '; '.join(parts) or 'nothing of it fits'


def fit_of(state_dict: StateDict, network: nn.Module, source: str) -> Fit:
    """Compare converted weights with a network; nothing is loaded.

    Args:
        state_dict: in our names.
        network: built, its names as of a whole model (``backbone.…``) or of a bare layer.
        source: where the weights are from; those of plain ResNets may lack attentions, necks and heads.
    """
    ours = network.state_dict()
    parts = {name.split('.')[0] for name in ours}
    whole = source == 'kcla-layer' or parts > {'backbone'}
    unchecked = [] if whole else [name for name in state_dict if name.split('.')[0] not in parts]
    report = compare(network, {name: tensor for name, tensor in state_dict.items() if name not in set(unchecked)})
    fit = Fit(report.matched, unexpected=report.unexpected, unchecked=unchecked)
    for name in report.missing:
        (fit.kept if source in PLAIN_SOURCES and _is_new(name, state_dict) else fit.missing).append(name)
    fit.mismatched = {name: f'{name} {_shape(state_dict, name)} in the file, {_shape(ours, name)} in the network'
                      for name in report.mismatched}
    return fit


def _is_new(name: str, state_dict: Mapping[str, Tensor]) -> bool:
    """Whether plain weights cannot be expected to have it: an attention, or a part of which they have nothing."""
    part = name.split('.')[0]
    return name.startswith('backbone.layer_attentions.') or not any(other.split('.')[0] == part for other in state_dict)


def _shape(entries: Mapping[str, Tensor], name: str) -> str:
    return '×'.join(map(str, entries[name].shape)) or 'a number'
