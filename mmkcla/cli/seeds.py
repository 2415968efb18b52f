"""Train and test a config with several seeds; report mean and standard deviation.

Each seed is trained and tested in separate processes, in <work-dir>/seed_<N>. The test uses the best checkpoint of the
validation (save_best in the config), or the last one if there is none. <work-dir>/results.csv and results.md contain
the metrics of each seed, their mean and sample standard deviation (n - 1). Seeds of earlier calls are included if they
have the same training and test settings.

Run the same command again to resume: finished seeds are skipped, interrupted ones are resumed, and a folder of a
different config is refused. With --against, the config is compared with another one over images and over seeds, with
paired tests and intervals of the difference. If a seed fails, it is reported, the remaining seeds still run, and the
exit code is 1.
"""
import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runtime.config import load_config
from ..utils.text import note
from .arguments import add_config_arguments, add_seed_arguments, seed_options

if TYPE_CHECKING:
    from ..runtime.seeds import SeedResult
    from ..runtime.seeds.run import SeedRun

SUMMARY = 'train and test with several seeds; report mean and standard deviation'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla seeds``."""
    add_config_arguments(parser)
    add_seed_arguments(parser)
    parser.add_argument('--work-dir', help='folder of seeds and results (default: work_dirs/<config>)')
    parser.add_argument('--against', metavar='WORK_DIR',
                        help='compare with the seeds in this folder, the --work-dir of another config')
    parser.add_argument('--metrics', nargs='+', metavar='NAME',
                        help='metrics of the comparison in the output (default: the usual ones of the task); '
                             'comparisons.csv and .json have all')


def run(args: argparse.Namespace) -> int:
    """Train and test all seeds; see :func:`add_arguments`."""
    from ..runtime.seeds.run import SeedOptions, run_all, work_dir_of
    options = SeedOptions(**seed_options(args), config=args.config, cfg_options=args.cfg_options,
                          work_dir=args.work_dir)
    if args.against is not None and not Path(args.against).is_dir():
        raise UserError(f'--against: no such folder: {args.against}')
    found = run_all(options)
    if args.dry_run:
        return 0
    config = load_config(args.config, args.cfg_options)
    work_dir, name = work_dir_of(options, config), Path(config.filename).stem
    code = report(work_dir, name, found.results, found.notes)
    if found.warning:
        note(found.warning)
    if args.against is not None:
        compare(work_dir, name, found, Path(args.against), args.metrics)
    return code


def report(work_dir: Path, name: str, results: 'list[SeedResult]', notes: list[str]) -> int:
    """Write and print the results.

    Returns:
        The exit code: 1 if a seed failed.
    """
    from ..runtime.seeds.report import REPORT, TABLE, digits_for, mean_and_deviation, summarise, write_results
    write_results(work_dir, name, results, notes)
    failed = [result.seed for result in results if result.failed]
    print()
    for metric, summary in summarise(results).items():
        digits = digits_for([result.metrics.get(metric) for result in results])
        print(f'{metric}: {mean_and_deviation(summary, digits)} (n = {summary.count})')
    print(f'results: {work_dir / TABLE}, {work_dir / REPORT}')
    if failed:
        print(f'error: {len(failed)} of {len(results)} seeds failed: {", ".join(map(str, failed))}', file=sys.stderr)
    return 1 if failed else 0


def compare(work_dir: Path, name: str, run: 'SeedRun', against: Path, metrics: 'list[str] | None') -> None:
    """Compare the finished seeds with those in another folder; write and print what is shown.

    Raises:
        UserError: no seed in ``against`` has been tested, ``metrics`` are unknown, or it is the same folder.
    """
    from ..runtime.hosts import without_noise
    with without_noise():
        from ..runtime.comparison import Candidate, candidate_in, compare_and_write
    if against.resolve() == work_dir.resolve():
        raise UserError(f'--against: {against} is the folder of this config; give that of another one')
    other = candidate_in(against, against.name)
    done = [result for result in run.results if result.status == 'done']
    ours = Candidate(name if name != other.name else f'{name} (this config)',
                     {result.seed: work_dir / f'seed_{result.seed}' for result in done},
                     {result.seed: result.metrics for result in done}, **run.tested_on)
    if not done:
        return
    known = set().union(*(values for each in (ours, other) for values in each.metrics.values()))
    if unknown := [metric for metric in metrics or () if metric not in known]:
        raise UserError(f'--metrics {" ".join(unknown)}: not in the results; available: {", ".join(sorted(known))}')
    lines, paths = compare_and_write(work_dir / 'comparisons', [ours, other], other.name, metrics)
    print('\n' + '\n'.join(lines))
    print(f'comparisons: {", ".join(map(str, paths))}')
