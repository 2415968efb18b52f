"""Train and test several configs with several seeds; collect the results in one table.

Each config is run like "mmkcla seeds" in <work-dir>/<config>, all with the same seeds. <work-dir>/sweep.csv and
sweep.md have one row per config: mean and sample standard deviation (n - 1) of each metric. Run the same command again
to resume. Rows of earlier calls are kept. If a config or a seed fails, it is reported, the remaining ones still run,
and the exit code is 1.

Configs that were tested on the same images are compared: over images and over seeds, with paired tests, intervals of
the difference and Holm's correction. sweep.md says what is shown; sweep_comparisons.csv, .json and .png have all
numbers.
"""
import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..paths import find_config
from ..runtime.config import check_writable
from ..utils.text import did_you_mean, one_line
from .arguments import add_seed_arguments, seed_options

if TYPE_CHECKING:
    from ..runtime.sweep import SweepRow

SUMMARY = 'train and test several configs with several seeds; one table'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla sweep``."""
    parser.add_argument('configs', nargs='+', metavar='config',
                        help='config files: paths, or names of configs shipped with the package')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='override entries of all configs')
    add_seed_arguments(parser)
    parser.add_argument('--work-dir', default='work_dirs/sweep',
                        help='output folder of all configs and of the table (default: %(default)s)')
    parser.add_argument('--metrics', nargs='+', metavar='NAME',
                        help='metrics in sweep.md (default: all but those of single classes); sweep.csv has all. They '
                             'are also the metrics of the comparisons in sweep.md; choose them before you see the '
                             'results')
    parser.add_argument('--baseline', metavar='CONFIG',
                        help='compare each config with this one only (default: all pairs)')


def run(args: argparse.Namespace) -> int:
    """Run all configs; see :func:`add_arguments`."""
    from ..runtime.processes import stoppable
    from ..runtime.seeds.run import SeedOptions, check_options, run_all
    from ..runtime.sweep import SweepRow, merge_rows, read_rows, write_sweep
    options = SeedOptions('', **seed_options(args), cfg_options=args.cfg_options)
    check_options(options)
    names = [Path(find_config(config)).stem for config in args.configs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f'two configs are named {name}; rename one, since the names are used as folders')
    work_dir = Path(args.work_dir)
    earlier = read_rows(work_dir)
    if args.baseline is not None:
        args.baseline = _known_baseline(args.baseline, [*names, *(row.config for row in earlier)])
    if not args.dry_run:
        check_writable(work_dir, '--work-dir')

    rows = [SweepRow(name) for name in names]
    with stoppable():
        for number, (config, row) in enumerate(zip(args.configs, rows, strict=True), start=1):
            print(f'config {number} of {len(rows)}: {row.config}', flush=True)
            own = dataclasses.replace(options, config=config, work_dir=str(work_dir / row.config))
            try:
                found = run_all(own)
                row.results = [result for result in found.results if result.seed in args.seeds]  # the same in each row
                row.test, row.tested_on, row.warning = found.test, found.tested_on, found.warning
            except UserError as error:
                row.error = one_line(error)
                print(f'error: {row.config}: {row.error}', file=sys.stderr)
            if not args.dry_run:
                write_sweep(work_dir, merge_rows(earlier, rows), args.seeds, args.metrics)
    if args.dry_run:
        return 0
    return report(work_dir, rows, merge_rows(earlier, rows), args)


def report(work_dir: Path, rows: 'list[SweepRow]', merged: 'list[SweepRow]', args: argparse.Namespace) -> int:
    """Compare the configs, write and print the table.

    Returns:
        The exit code: 1 if a config or a seed of this call failed.
    """
    from ..runtime.hosts import without_noise
    from ..runtime.sweep import COMPARISONS, write_sweep
    lines, paths = [], []
    if sum(bool(row.done) for row in merged) > 1:
        with without_noise():
            from ..runtime.comparison import candidates_of, compare_and_write
        lines, paths = compare_and_write(work_dir / COMPARISONS, candidates_of(work_dir, merged), args.baseline,
                                         args.metrics)
    write_sweep(work_dir, merged, args.seeds, args.metrics, lines)
    print('\n' + (work_dir / 'sweep.md').read_text(encoding='utf-8'))
    print(f'results: {work_dir / "sweep.csv"}, {work_dir / "sweep.md"}')
    if paths:
        print(f'comparisons: {", ".join(map(str, paths))}')
    failed = [row.config for row in rows if row.failed]
    if failed:
        print(f'error: {len(failed)} of {len(rows)} configs failed: {", ".join(failed)}', file=sys.stderr)
    return 1 if failed else 0


def _known_baseline(baseline: str, names: 'list[str]') -> str:
    name = baseline if baseline in names else Path(baseline).stem
    if name not in names:
        raise UserError(f'--baseline {baseline} is not one of the configs: {", ".join(dict.fromkeys(names))}'
                        + did_you_mean(name, names))
    return name
