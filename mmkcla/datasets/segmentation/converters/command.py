"""The command line that the converters of medical data sets share."""
from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from itertools import groupby

from mmkcla.datasets.segmentation.converters.layout import NOT_THERE, Layout, Problem
from mmkcla.datasets.segmentation.converters.medical import convert
from mmkcla.errors import UserError

SHOWN = 10  # files of a kind of problem that are named on the terminal; problems.txt names all


def main(layout: Layout, argv: Sequence[str] | None = None) -> int:
    """Run one converter; returns the exit code (0, or 2 after a line ``error: ...``)."""
    arguments = vars(_parser(layout).parse_args(argv))
    warnings.filterwarnings('ignore', module='PIL')  # of damaged EXIF data, which are not used
    try:
        outcome = convert(layout, **arguments)
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f'\ninterrupted; the same command goes on where it stopped ({arguments["out"]}.partial)', file=sys.stderr)
        return 130
    for note in outcome.notes:
        print(f'note: {note}', file=sys.stderr)
    for line in summary(outcome.problems):
        print(line, file=sys.stderr)
    print(outcome.text)
    return 0


def summary(problems: Sequence[Problem]) -> list[str]:
    """Lines that tell the problems by kind and name."""
    if not problems:
        return []
    counts = {'only reported': sum(problem.kept for problem in problems),
              'not in the data': sum(problem.kind == NOT_THERE for problem in problems)}
    counts['left out'] = len(problems) - sum(counts.values())
    told = ', '.join(f'{count} {what}' for what, count in counts.items() if count)
    lines = [f'{len(problems)} problem{"s" * (len(problems) != 1)} ({told}; all in problems.txt):']
    for kind, group in groupby(sorted(problems), key=lambda problem: problem.kind):
        group = list(group)
        names = ', '.join(f'{problem.file} ({problem.detail})' if problem.detail else problem.file
                          for problem in group[:SHOWN])
        lines.append(f'  {kind} ({len(group)}): {names}' + (', ...' if len(group) > SHOWN else ''))
    return lines


def _parser(layout: Layout) -> argparse.ArgumentParser:
    zips = ', '.join(f'{name}.zip' for name in layout.archives)
    parser = argparse.ArgumentParser(
        description=f'Prepare {layout.title} for training: images/{{train,val,test}}, masks/{{train,val,test}} (PNG, '
                    'values 0 and 1) and manifest.json. Images and masks are paired by name; images stay byte for '
                    'byte as published, unless EXIF data turn them: those become upright PNG. Pairs with problems are '
                    'left out and named (a mask without foreground is kept).',
        epilog=f'Splits. {layout.about_splits} The same options give the same bytes; a data set already written with '
               'them is left alone. A run that was killed goes on when started again. Exit code 2 and one line '
               f'"error: ..." if something is wrong. Example: python tools/dataset_converters/{layout.name}.py '
               f'~/Downloads --out data/{layout.name}')
    parser.add_argument('source', metavar='SOURCE',
                        help=f'folder with the downloaded files ({zips}) or what is unpacked from them, or such a file')
    parser.add_argument('--out', default=f'data/{layout.name}', metavar='DIR',
                        help='folder to write (default: %(default)s)')
    choices = 'official, or a ratio' if layout.official else 'a ratio'
    parser.add_argument('--split', metavar='SPLIT',
                        help=f'{choices}: 7:3 (train and test), 8:1:1 (train, val and test) (default: {layout.split})')
    parser.add_argument('--seed', type=int, default=0, help='of a ratio (default: %(default)s)')
    parser.add_argument('--split-file', metavar='FILE',
                        help='in place of --split: lines "split name", or JSON {"train": [names], "val": [names], '
                             '"test": [names]}, or a folder with train.txt, val.txt, test.txt')
    parser.add_argument('--workers', type=int, metavar='N', help='threads (default: one a processor)')
    parser.add_argument('--strict', action='store_true', help='any problem is an error, and DIR is not written')
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a data set that was written with other options, or is damaged')
    return parser
