"""Compare converted weights with their target network."""
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
    """Comparison of converted weights with a network; all names are ours.

    Attributes:
        matched: entries with equal name and shape.
        kept: entries of the network that a plain ResNet cannot contain, mainly layer attentions; they keep their
            initial values.
        missing: entries of the network that the file should contain.
        unexpected: entries of the file that the network does not have.
        mismatched: entries with different shapes; each maps to a description with both shapes.
        unchecked: entries of the file for parts that were not built for the comparison (neck and heads of a detector).
    """

    matched: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all entries match, except those ``kept`` or ``unchecked``."""
        return bool(self.matched) and not (self.missing or self.unexpected or self.mismatched)

    @property
    def lost(self) -> list[str]:
        """Entries that are not written, since they would not load: ``unexpected`` and ``mismatched``."""
        return [*self.unexpected, *self.mismatched]

    def problems(self) -> str:
        """Describe in one line why the fit is not complete."""
        parts = [f'{len(names)} {kind} ({listed(names)})' for kind, names in (
            ('missing', self.missing), ('unexpected', self.unexpected),
            ('mismatched in shape', list(self.mismatched.values()))) if names]
        return '; '.join(parts) or 'no entry matches'


def fit_of(state_dict: StateDict, network: nn.Module, source: str) -> Fit:
    """Compare converted weights with a network; nothing is loaded.

    Args:
        state_dict: converted weights.
        network: a whole model (names start with ``backbone.``) or a single layer.
        source: origin of the weights; plain ResNets may lack attentions, necks and heads.
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
    """Whether plain weights cannot contain the entry: an attention, or a part without any entry in the file."""
    part = name.split('.')[0]
    return name.startswith('backbone.layer_attentions.') or not any(other.split('.')[0] == part for other in state_dict)


def _shape(entries: Mapping[str, Tensor], name: str) -> str:
    return '×'.join(map(str, entries[name].shape)) or 'a scalar'
