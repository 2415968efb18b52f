"""Mean and standard deviation over seeds, as CSV and Markdown."""
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...utils.files import whole_file
from ...utils.tables import write_csv
from .records import SeedResult

TABLE, REPORT = 'results.csv', 'results.md'


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (n - 1; None for a single value) of ``count`` values."""

    mean: float
    sd: float | None
    count: int


def summarise(results: list[SeedResult]) -> dict[str, Summary]:
    """Summarise each metric over the seeds that have a value for it.

    Interval bounds (``x_lo``, ``x_hi`` of ``x``) are omitted: their means are not an interval.
    """
    names = dict.fromkeys(name for result in results for name in result.metrics)
    summaries = {}
    for name in names:
        values = [float(result.metrics[name]) for result in results if _is_number(result.metrics.get(name))]
        if values and not (name.endswith(('_lo', '_hi')) and name[:-3] in names):
            sd = statistics.stdev(values) if len(values) > 1 else None
            summaries[name] = Summary(statistics.fmean(values), sd, len(values))
    return summaries


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def write_table(path: Path, results: list[SeedResult]) -> None:
    """Write a CSV with one row per seed, then rows ``mean``, ``sd`` and ``n``; full precision, empty if missing."""
    names = list(dict.fromkeys(name for result in results for name in result.metrics))
    summaries = summarise(results)
    rows = [dict(seed=result.seed, status=result.status, checkpoint=result.checkpoint) | result.metrics
            for result in results]
    rows += [dict(seed=kind) | {name: getattr(summary, attribute) for name, summary in summaries.items()}
             for kind, attribute in (('mean', 'mean'), ('sd', 'sd'), ('n', 'count'))]
    write_csv(path, rows, ['seed', 'status', 'checkpoint', *names], digits=None)


def write_report(path: Path, title: str, results: list[SeedResult], notes: list[str]) -> None:
    """Write a Markdown table with one row per metric, ``mean ± sd`` and one column per seed, followed by ``notes``."""
    done = [result for result in results if result.status == 'done']
    names = dict.fromkeys(name for result in done for name in result.metrics)
    summaries = summarise(done)
    lines = [f'# {title}', '',
             f'{len(done)} of {len(results)} seeds are done. Mean ± sample standard deviation (n − 1).', '']
    if done:
        lines += ['| metric | mean ± sd | n | ' + ' | '.join(f'seed {result.seed}' for result in done) + ' |',
                  '|---|---|---|' + '---|' * len(done)]
        for name in names:
            values = [result.metrics.get(name) for result in done]
            digits = digits_for(values)
            middle = mean_and_deviation(summaries.get(name), digits)
            count = summaries[name].count if name in summaries else ''
            shown = [f'{value:.{digits}f}' if _is_number(value) else '' for value in values]
            lines.append(f'| {name} | {middle} | {count} | ' + ' | '.join(shown) + ' |')
        lines.append('')
    lines += [f'* seed {result.seed} failed: {_escaped(result.status)}' for result in results if result.failed]
    lines += [f'* {_escaped(text)}' for text in notes]
    with whole_file(path, 'w') as file:
        file.write('\n'.join(lines).rstrip() + '\n')


def mean_and_deviation(summary: Summary | None, digits: int) -> str:
    """Format as ``0.9123 ± 0.0034``; only the mean if there is no standard deviation."""
    if summary is None:
        return ''
    return f'{summary.mean:.{digits}f}' + ('' if summary.sd is None else f' ± {summary.sd:.{digits}f}')


def digits_for(values: list[Any]) -> int:
    """Return the number of decimals: four for fractions, two for percentages and pixels, none for counts."""
    numbers = [value for value in values if _is_number(value)]
    if all(isinstance(value, int) for value in numbers):
        return 1 if len(set(numbers)) > 1 else 0
    return 4 if max(map(abs, numbers)) < 2 else 2


def _escaped(text: str) -> str:
    return text.replace('|', '\\|').replace('<', '&lt;')


def write_results(work_dir: Path, name: str, results: 'list[SeedResult]', notes: list[str]) -> None:
    """Write ``results.csv`` and ``results.md`` atomically."""
    write_table(work_dir / TABLE, results)
    write_report(work_dir / REPORT, name, results, notes)
