"""The table of several configs, each trained with several seeds."""
import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError
from ..utils.files import whole_file
from .seeds import SeedResult, Summary, digits_for, summarise, told

TABLE, REPORT = 'sweep.csv', 'sweep.md'


@dataclass
class SweepRow:
    """A config, what came of its seeds, and the error that kept it from starting."""

    config: str
    results: list[SeedResult] = field(default_factory=list)
    error: str = ''

    @property
    def failed(self) -> bool:
        """Whether it, or a seed of it, was tried in vain."""
        return bool(self.error) or any(result.failed for result in self.results)

    @property
    def done(self) -> list[SeedResult]:
        """The seeds that have been tested."""
        return [result for result in self.results if result.status == 'done']

    @property
    def summaries(self) -> dict[str, Summary]:
        """Of the seeds that are done."""
        return summarise(self.done)


def _cell(row: SweepRow, name: str) -> str:
    """Mean and deviation, and of how many seeds where not all that are done have a number."""
    summary = row.summaries.get(name)
    if summary is None:
        return ''
    text = told(summary, digits_for([result.metrics.get(name) for result in row.done]))
    return text if summary.count == len(row.done) else f'{text} (n = {summary.count})'


def write_sweep(work_dir: Path, rows: list[SweepRow], seeds: Sequence[int], metrics: Sequence[str] | None) -> None:
    """Write ``sweep.csv`` (every metric, numbers in full) and ``sweep.md`` (``metrics``, or every one), each whole.

    Raises:
        UserError: for a metric that no config has, once all have been tested.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.summaries))
    with whole_file(work_dir / TABLE, 'w') as file:
        table = csv.writer(file, lineterminator='\n')
        table.writerow(['config', 'seeds', *(f'{name} {part}' for name in names for part in ('mean', 'sd', 'n'))])
        for row in rows:
            summaries = row.summaries
            cells = [(summary.mean, '' if summary.sd is None else summary.sd, summary.count) if summary else ('', '', 0)
                     for summary in map(summaries.get, names)]
            table.writerow([row.config, len(row.done), *(value for cell in cells for value in cell)])
    shown = list(metrics or names)
    unknown = [name for name in shown if names and name not in names]
    lines = ['# Sweep', '',
             f'Seeds {", ".join(map(str, seeds))}; mean ± standard deviation of the sample (n − 1) over the seeds that '
             'are done.', '', '| config | seeds | ' + ' | '.join(shown) + ' |', '|---|---|' + '---|' * len(shown)]
    for row in rows:
        cells = [_cell(row, name) for name in shown]
        lines.append(f'| {row.config} | {len(row.done)} of {len(seeds)} | ' + ' | '.join(cells) + ' |')
    lines += ['', *(f'* {row.config} failed: {row.error}' for row in rows if row.error),
              *(f'* {row.config}, seed {result.seed} failed: {result.status}' for row in rows
                for result in row.results if result.failed)]
    with whole_file(work_dir / REPORT, 'w') as file:
        file.write('\n'.join(lines).rstrip() + '\n')
    if unknown and all(row.done or row.error for row in rows):
        raise UserError(f'--metrics {" ".join(unknown)}: not among the results, which are {", ".join(names)}')
