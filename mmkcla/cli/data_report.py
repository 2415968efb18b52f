"""Common options of the data commands, and the printing of their results."""
import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..utils.signals import with_advice
from ..utils.text import plural, printable

if TYPE_CHECKING:
    from ..datasets.segmentation.converters.layout import Problem
    from ..datasets.segmentation.converters.writing import Outcome

SHOWN = 10  # files printed per kind of problem; problems.txt lists all


def add_kind(kinds: 'argparse._SubParsersAction', name: str, what: str, description: str, epilog: str,
             run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    """Add a sub-command of ``mmkcla data``; description and epilog are printed as written."""
    parser = kinds.add_parser(name, help=what, description=description, epilog=epilog,
                              formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--traceback', action='store_true', default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(run_kind=run)
    return parser


def add_conversion_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--workers``, ``--strict`` and ``--overwrite``."""
    parser.add_argument('--workers', type=int, metavar='N', help='number of threads (default: one per processor)')
    parser.add_argument('--strict', action='store_true', help='treat any problem as an error and write nothing')
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a data set that was written with other options, or is damaged')


def options_of(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The named arguments, as keyword arguments of a converter."""
    return {name: getattr(args, name) for name in names}


def run_conversion(convert: Callable[[], 'Outcome'], out: str) -> int:
    """Convert; print notes and problems to stderr and the result to stdout; return the exit code."""
    warnings.filterwarnings('ignore', module='PIL')  # damaged EXIF data, which are not used
    try:
        outcome = convert()
    except KeyboardInterrupt as stop:
        raise with_advice(stop, f'run the same command again to resume ({out}.partial)') from None
    for note in outcome.notes:
        print(f'note: {printable(note)}', file=sys.stderr)
    for line in summary(outcome.problems):
        print(printable(line), file=sys.stderr)
    print(printable(outcome.text))
    return 0


def summary(problems: Sequence['Problem']) -> list[str]:
    """Lines that list the problems by kind."""
    if not problems:
        return []
    from ..datasets.segmentation.converters.layout import NOT_THERE
    counts = {'only reported': sum(problem.kept for problem in problems),
              'not in the data': sum(problem.kind == NOT_THERE for problem in problems)}
    counts['left out'] = len(problems) - sum(counts.values())
    numbers = ', '.join(f'{count} {what}' for what, count in counts.items() if count)
    lines = [f'{plural(len(problems), "problem")} ({numbers}; all in problems.txt):']
    for kind, group in groupby(sorted(problems), key=lambda problem: problem.kind):
        group = list(group)
        names = ', '.join(f'{problem.file} ({problem.detail})' if problem.detail else problem.file
                          for problem in group[:SHOWN])
        lines.append(f'  {kind} ({len(group)}): {names}' + (', ...' if len(group) > SHOWN else ''))
    return lines
