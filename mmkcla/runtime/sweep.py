"""Table of several configs, each trained with several seeds."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..utils.files import whole_file
from ..utils.tables import write_csv
from .seeds.records import SeedResult
from .seeds.report import Summary, digits_for, mean_and_deviation, summarise

TABLE, REPORT = 'sweep.csv', 'sweep.md'


@dataclass
class SweepRow:
    """A config, the results of its seeds, and the error if it could not be started."""

    config: str
    results: list[SeedResult] = field(default_factory=list)
    error: str = ''

    @property
    def failed(self) -> bool:
        """Whether the config or one of its seeds failed."""
        return bool(self.error) or any(result.failed for result in self.results)

    @property
    def done(self) -> list[SeedResult]:
        """The seeds that have been tested."""
        return [result for result in self.results if result.status == 'done']

    @property
    def summaries(self) -> dict[str, Summary]:
        """Summaries over the seeds that are done."""
        return summarise(self.done)


def _cell(row: SweepRow, name: str) -> str:
    """Format mean and deviation; add the number of seeds if not all finished seeds have a value."""
    summary = row.summaries.get(name)
    if summary is None:
        return ''
    text = mean_and_deviation(summary, digits_for([result.metrics.get(name) for result in row.done]))
    return text if summary.count == len(row.done) else f'{text} (n = {summary.count})'


def _cells(row: SweepRow) -> dict[str, Any]:
    """Return a row of the table, by column."""
    cells: dict[str, Any] = dict(config=row.config, seeds=len(row.done))
    for name, summary in row.summaries.items():
        cells |= {f'{name} mean': summary.mean, f'{name} sd': summary.sd, f'{name} n': summary.count}
    return cells


def write_sweep(work_dir: Path, rows: list[SweepRow], seeds: Sequence[int], metrics: Sequence[str] | None) -> None:
    """Write ``sweep.csv`` (all metrics, full precision) and ``sweep.md`` (``metrics``, or all) atomically.

    Raises:
        UserError: no config has one of ``metrics``, after all configs have been tested.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.summaries))
    none = {f'{name} n': 0 for name in names}  # for configs without a value
    write_csv(work_dir / TABLE, (none | _cells(row) for row in rows),
              ['config', 'seeds', *(f'{name} {part}' for name in names for part in ('mean', 'sd', 'n'))], digits=None)
    shown = list(metrics or names)
    unknown = [name for name in shown if names and name not in names]
    lines = ['# Sweep', '',
             f'Seeds {", ".join(map(str, seeds))}; mean ± sample standard deviation (n − 1) over the seeds that are '
             'done.', '', '| config | seeds | ' + ' | '.join(shown) + ' |', '|---|---|' + '---|' * len(shown)]
    for row in rows:
        cells = [_cell(row, name) for name in shown]
        lines.append(f'| {row.config} | {len(row.done)} of {len(seeds)} | ' + ' | '.join(cells) + ' |')
    lines += ['', *(f'* {row.config} failed: {row.error}' for row in rows if row.error),
              *(f'* {row.config}, seed {result.seed} failed: {result.status}' for row in rows
                for result in row.results if result.failed)]
    with whole_file(work_dir / REPORT, 'w') as file:
        file.write('\n'.join(lines).rstrip() + '\n')
    if unknown and all(row.done or row.error for row in rows):
        raise UserError(f'--metrics {" ".join(unknown)}: not in the results; available: {", ".join(names)}')
