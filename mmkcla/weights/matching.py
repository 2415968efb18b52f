"""Compare a state dict with a model, and load the matching entries."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..errors import UserError
from ..utils.text import listed
from .reading import state_dict_of

_FEW = 0.1  # a smaller part of the entries is no pretraining, but another model


def state_dict_for(model: nn.Module, checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Like :func:`state_dict_of`, but map the weights of a single neck to the matching neck of a list of necks.

    A checkpoint of a detector with an FPN has ``neck.X``; with ``neck=[dict(type='FPN', …), …]`` the FPN is
    ``neck.0.X``.
    """
    weights = state_dict_of(checkpoint)
    index = neck_index(model, weights)
    if index is None:
        return weights
    return {in_neck_list(name, index): value for name, value in weights.items()}


def neck_index(model: nn.Module, names: Iterable[str]) -> str | None:
    """The index in the model's list of necks to which the weights of a single neck belong; None if there is none."""
    inside = {name.removeprefix('neck.') for name in names if name.startswith('neck.')}
    parts = getattr(model, 'neck', None)
    if isinstance(parts, nn.Sequential) and inside:
        return next((index for index, part in parts.named_children() if set(part.state_dict()) == inside), None)
    return None


def in_neck_list(name: str, index: str) -> str:
    """The name in a list of necks of ``neck.X``; other names are unchanged."""
    return re.sub(r'^neck\.', f'neck.{index}.', name)


@dataclass
class LoadReport:
    """Result of comparing a state dict with a module: names of parameters and buffers."""

    matched: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the entries of the model that match."""
        return len(self.matched) / max(1, len(self.matched) + len(self.missing) + len(self.mismatched))

    @property
    def complete(self) -> bool:
        """Whether the state dict and the model have the same entries, with equal shapes."""
        return not (self.missing or self.unexpected or self.mismatched)

    def summary(self) -> str:
        """Return one line: the four counts, and the first names of entries that do not match."""
        counts = (f'{len(self.matched)} matched, {len(self.missing)} missing, {len(self.unexpected)} unexpected, '
                  f'{len(self.mismatched)} mismatched in shape')
        firsts = [f'{kind}: {listed(getattr(self, kind))}' for kind in ('missing', 'unexpected', 'mismatched')
                  if getattr(self, kind)]
        return f'{counts} ({"; ".join(firsts)})' if firsts else counts


def compare(model: nn.Module, state_dict: Mapping[str, Tensor]) -> LoadReport:
    """Compare ``state_dict`` with ``model`` without loading it. BN step counters, which old files lack, are not
    reported as missing."""
    ours = model.state_dict()
    report = LoadReport()
    for name, tensor in ours.items():
        if name in state_dict:
            same = tuple(state_dict[name].shape) == tuple(tensor.shape)
            (report.matched if same else report.mismatched).append(name)
        elif not name.endswith('num_batches_tracked'):
            report.missing.append(name)
    report.unexpected = [name for name in state_dict if name not in ours]
    return report


def initial_line(report: LoadReport, filename: str | os.PathLike) -> str | None:
    """Return a note on the entries of a model that keep their initial values; None if there are none."""
    kept = report.missing + report.mismatched
    if not kept:
        return None
    return (f'checkpoint {filename}: {len(kept)} of {len(kept) + len(report.matched)} entries of the model are not in '
            f'it or have another shape; they keep their initial values: {listed(kept)}')


def load_matching(model: nn.Module, state_dict: Mapping[str, Tensor]) -> LoadReport:
    """Load the entries that match by name and shape; return the report."""
    report = compare(model, state_dict)
    model.load_state_dict({name: state_dict[name] for name in report.matched}, strict=False)
    return report


def require(report: LoadReport, required: str, filename: str | os.PathLike, hint: str = '') -> None:
    """Refuse a checkpoint that covers less of the model than ``required`` (``'all'``, ``'most'``, which is a tenth
    of the entries, or ``'some'``, one entry).

    Raises:
        UserError: it does; with the four counts, the first names that differ, and ``hint``.
    """
    if not report.matched:
        raise UserError(f'checkpoint {filename} has nothing in common with the model of the config '
                        f'({report.summary()}); check that it belongs to this model')
    if required == 'most' and report.share < _FEW:
        raise UserError(f'checkpoint {filename} has {len(report.matched)} of the '
                        f'{len(report.matched) + len(report.missing) + len(report.mismatched)} entries of the model '
                        f'({report.summary()}); check that it belongs to this model, or use --allow-partial')
    if required == 'all' and not report.complete:
        raise UserError(f'checkpoint {filename} fits the model of the config only partially ({report.summary()}){hint}')
