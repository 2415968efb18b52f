"""Reports about a data set: what it contains, its faults, and samples to look at.

``mmkcla data verify`` prints them. Two registries of :mod:`mmkcla.registry` hold the functions that write them:

* ``DATA_REPORTS``, by class name of the data set, as ``DATA_CHECKS``: ``report(dataset, config) -> Report | None``,
  with a :class:`mmkcla.datasets.check.Dataset` and the whole config. None: nothing to report on (a remote file).
* ``PATH_REPORTS``, by any name: ``report(path) -> Report | list[Report] | None`` for a file or folder given without a
  config. None: the path is of another kind. The first report wins.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..utils.text import plural
from .findings import PLACES, Finding
from .sheet import Sample

REFUSED = 'refused'  # a result would be wrong, or the host would fail
DROPPED = 'dropped'  # the host leaves it out without a message
REPAIRED = 'repaired'  # in memory
NOTE = 'note'  # unusual, but harmless
SEVERITIES = (REFUSED, DROPPED, REPAIRED, NOTE)


@dataclass
class Fault:
    """One kind of fault.

    Attributes:
        kind: a noun phrase in the plural, without names of files: ``'annotations of unknown images'``.
        severity: one of :data:`SEVERITIES`.
        count: how often it occurs.
        places: the first :data:`PLACES`, e.g. ``'id 7 in a.jpg'``.
        remedy: what to do, or what happens; without a full stop.
    """

    kind: str
    severity: str
    count: int
    places: list[str]
    remedy: str = ''

    def __str__(self) -> str:
        places = ', '.join(self.places) + (f' and {self.count - len(self.places)} more'
                                           if self.count > len(self.places) else '')
        number = f': {self.count}' if self.count != 1 or self.places else ''  # a single fault of the whole set
        return f'{self.kind}{number}' + (f' ({places})' if self.places else '') + (
            f'; {self.remedy}' if self.remedy else '')


@dataclass
class Report:
    """What a data set contains.

    Attributes:
        title: the file or folder, with its key in the config.
        counts: e.g. ``{'images': 4, 'objects': {'coin': 7}}``; values are numbers, text, or a dict of these.
        faults: sorted by severity.
        classes: names by label, for the legend of the pictures.
        foreground: the first label of a mask that is drawn.
        draw: returns the samples; called only when pictures are wanted.
    """

    title: str
    counts: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    classes: Sequence[str] = ()
    foreground: int = 0
    draw: Callable[[], list[Sample]] | None = None

    def samples(self) -> list[Sample]:
        """Pictures with their labels, the faulty ones first."""
        return self.draw() if self.draw else []

    def of(self, severity: str) -> list[Fault]:
        """The faults of one severity."""
        return [fault for fault in self.faults if fault.severity == severity]

    def to_json(self) -> dict[str, Any]:
        """Title, counts and faults as plain types."""
        return {'title': self.title, 'counts': self.counts,
                'faults': [{'kind': fault.kind, 'severity': fault.severity, 'count': fault.count,
                            'places': fault.places, 'remedy': fault.remedy} for fault in self.faults]}

    def text(self) -> str:
        """The report for the terminal."""
        lines = [self.title]
        for name, value in self.counts.items():
            shown = ', '.join(f'{key} {count}' for key, count in value.items()) if isinstance(value, dict) else value
            lines.append(f'  {name}: {shown}')
        for severity in SEVERITIES:
            lines += [f'  {severity}: {fault}' for fault in self.of(severity)]
        if not self.faults:
            lines.append('  no faults')
        return '\n'.join(lines)


def conclusion(reports: Sequence[Report]) -> str:
    """One line: how many kinds of faults, by severity."""
    numbers = {severity: sum(len(report.of(severity)) for report in reports) for severity in SEVERITIES}
    return f'{plural(len(reports), "data set")}; ' + ', '.join(f'{count} {name}' for name, count in numbers.items())


def faults_of(findings: Iterable[Finding]) -> list[Fault]:
    """The findings of a data check as faults: refused, or notes."""
    return [Fault(finding.text, REFUSED if finding.refuse else NOTE, finding.count, finding.places[:PLACES])
            for finding in findings]
