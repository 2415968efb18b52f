"""Table of several configs, each trained with several seeds; rows of earlier calls are kept."""
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..evaluation.names import is_class_score
from ..utils.files import parse_json, whole_file, write_json
from ..utils.tables import write_csv
from ..utils.text import one_line
from .seeds.records import SeedResult
from .seeds.report import Summary, digits_for, mean_and_deviation, summarise

TABLE, REPORT, ROWS, COMPARISONS = 'sweep.csv', 'sweep.md', 'sweep.json', 'sweep_comparisons'
_FORMAT = 1


@dataclass
class SweepRow:
    """A config, the results of its seeds, and the error if it could not be started.

    Args:
        config: name.
        results: of its seeds.
        error: why it could not be started.
        test: fingerprint of its training and test settings.
        tested_on: evaluator and data of its test.
        earlier: whether the row is from an earlier call.
        warning: why the figures are optimistic; empty if no reason is known.
    """

    config: str
    results: list[SeedResult] = field(default_factory=list)
    error: str = ''
    test: str = ''
    tested_on: dict[str, Any] = field(default_factory=dict)
    earlier: bool = False
    warning: str = ''

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


def read_rows(work_dir: Path) -> list[SweepRow]:
    """Read the rows of earlier calls; none if there were none.

    Raises:
        UserError: the file is damaged. It is not overwritten, since it may hold the only copy of some results.
    """
    path = work_dir / ROWS
    try:
        content = parse_json(path.read_text(encoding='utf-8'))
        if content['format'] != _FORMAT:
            raise ValueError(f'format {content["format"]}, expected {_FORMAT}')
        return [SweepRow(**(row | dict(results=[SeedResult(**result) for result in row['results']], earlier=True)))
                for row in content['rows']]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f'{path} cannot be read ({one_line(error, 200)}); it holds the rows of earlier calls: restore '
                        'it, or move it away to start a new table') from None


def merge_rows(earlier: Sequence[SweepRow], now: Sequence[SweepRow]) -> list[SweepRow]:
    """Return the rows of this call and the earlier ones that they do not replace.

    A row replaces an earlier one of the same config with the same settings. A row without results (pending, or an
    error) replaces none that has results.
    """
    replaced = {(row.config, row.test) for row in now if row.results}
    waiting = {row.config for row in earlier if row.done}
    kept = [row for row in earlier if (row.config, row.test) not in replaced
            and (row.done or row.config not in {other.config for other in now})]
    pending = [row for row in now if row.results or row.error or row.config not in waiting]
    return [*pending, *kept]


def labels(rows: Sequence[SweepRow]) -> list[str]:
    """Names of rows: the config, with the fingerprint of its settings if several rows have the same config."""
    names = [row.config for row in rows]
    found: list[str] = []
    for row in rows:
        found.append(row.config if names.count(row.config) == 1 or row.config not in found
                     else f'{row.config} (settings {row.test[:8] or "unknown"})')
    return found


def _cell(row: SweepRow, name: str) -> str:
    """Format mean and deviation; add the number of seeds if not all finished seeds have a value."""
    summary = row.summaries.get(name)
    if summary is None:
        return ''
    text = mean_and_deviation(summary, digits_for([result.metrics.get(name) for result in row.done]))
    return text if summary.count == len(row.done) else f'{text} (n = {summary.count})'


def _cells(row: SweepRow, label: str) -> dict[str, Any]:
    """Return a row of the table, by column."""
    cells: dict[str, Any] = dict(config=label, seeds=len(row.done))
    for name, summary in row.summaries.items():
        cells |= {f'{name} mean': summary.mean, f'{name} sd': summary.sd, f'{name} n': summary.count}
    return cells


def _seeds(row: SweepRow, asked: Sequence[int]) -> str:
    """``2 of 3``, with the seeds of an earlier call if they are others."""
    if not row.earlier or [result.seed for result in row.results] == list(asked):
        return f'{len(row.done)} of {len(row.results) or len(asked)}'
    return f'{len(row.done)} of {len(row.results)} (seeds {", ".join(str(result.seed) for result in row.results)})'


def _warnings(rows: Sequence[SweepRow]) -> list[str]:
    """Each warning once, with the names of its rows if it is not about all of them."""
    found: dict[str, list[str]] = {}
    for row, label in zip(rows, labels(rows), strict=True):
        if row.warning and row.done:
            found.setdefault(row.warning, []).append(label)
    done = sum(bool(row.done) for row in rows)
    return [f'* {text}' if len(names) == done else f'* {", ".join(names)}: {text}' for text, names in found.items()]


def write_sweep(work_dir: Path, rows: list[SweepRow], seeds: Sequence[int], metrics: Sequence[str] | None,
                comparisons: Sequence[str] = ()) -> None:
    """Write ``sweep.json`` (the rows), ``sweep.csv`` (all metrics, full precision) and ``sweep.md`` atomically.

    Args:
        work_dir: folder of the sweep.
        rows: of this call and of earlier ones.
        seeds: of this call.
        metrics: in ``sweep.md``; None: all but the scores of single classes.
        comparisons: lines below the table.

    Raises:
        UserError: no config has one of ``metrics``, after all configs have been tested.
    """
    write_json(work_dir / ROWS, dict(format=_FORMAT, rows=[
        {key: value for key, value in asdict(row).items() if key != 'earlier'} for row in rows]))
    names = list(dict.fromkeys(name for row in rows for name in row.summaries))
    none = {f'{name} n': 0 for name in names}  # for configs without a value
    write_csv(work_dir / TABLE, (none | _cells(row, label) for row, label in zip(rows, labels(rows), strict=True)),
              ['config', 'seeds', *(f'{name} {part}' for name in names for part in ('mean', 'sd', 'n'))], digits=None)
    shown = list(metrics or [name for name in names if not is_class_score(name)])
    unknown = [name for name in shown if names and name not in names]
    lines = ['# Sweep', '',
             f'Seeds {", ".join(map(str, seeds))}; mean ± sample standard deviation (n − 1) over the seeds that are '
             'done.', '', '| config | seeds | ' + ' | '.join(shown) + ' |', '|---|---|' + '---|' * len(shown)]
    for row, label in zip(rows, labels(rows), strict=True):
        cells = [_cell(row, name) for name in shown]
        lines.append(f'| {label} | {_seeds(row, seeds)} | ' + ' | '.join(cells) + ' |')
    lines += ['', *_warnings(rows),
              *(f'* {label} is a row of an earlier call' for row, label in zip(rows, labels(rows), strict=True)
                if row.earlier),
              *(f'* {row.config} failed: {row.error}' for row in rows if row.error),
              *(f'* {row.config}, seed {result.seed} failed: {result.status}' for row in rows
                for result in row.results if result.failed)]
    if comparisons:
        lines = ['\n'.join(lines).rstrip(), '', '## Comparisons', '', *comparisons]
    with whole_file(work_dir / REPORT, 'w') as file:
        file.write('\n'.join(lines).rstrip() + '\n')
    if unknown and all(row.done or row.error for row in rows):
        raise UserError(f'--metrics {" ".join(unknown)}: not in the results; available: {", ".join(names)}')
