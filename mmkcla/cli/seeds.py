"""Train and test a config with several seeds; report mean and standard deviation.

Each seed is trained and tested in separate processes, in <work-dir>/seed_<N>. The test uses the best checkpoint of the
validation (save_best in the config), or the last one if there is none. <work-dir>/results.csv and results.md contain
the metrics of each seed, their mean and sample standard deviation (n - 1). Seeds of earlier calls are included if they
have the same training and test settings.

Run the same command again to resume: finished seeds are skipped, interrupted ones are resumed, and a folder of a
different config is refused. If a seed fails, it is reported, the remaining seeds still run, and the exit code is 1.
"""
import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.config import load_config
from .arguments import add_config_arguments, add_seed_arguments, seed_options

if TYPE_CHECKING:

    from ..runtime.seeds import SeedResult

SUMMARY = 'train and test with several seeds; report mean and standard deviation'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla seeds``."""
    add_config_arguments(parser)
    add_seed_arguments(parser)
    parser.add_argument('--work-dir', help='folder of seeds and results (default: work_dirs/<config>)')


def run(args: argparse.Namespace) -> int:
    """Train and test all seeds; see :func:`add_arguments`."""
    from ..runtime.seeds.run import SeedOptions, run_all, work_dir_of
    options = SeedOptions(**seed_options(args), config=args.config, cfg_options=args.cfg_options,
                          work_dir=args.work_dir)
    results, notes = run_all(options)
    if args.dry_run:
        return 0
    config = load_config(args.config, args.cfg_options)
    return report(work_dir_of(options, config), Path(config.filename).stem, results, notes)


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
