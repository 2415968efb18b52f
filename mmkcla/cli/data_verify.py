"""``mmkcla data verify``: check a prepared segmentation data set."""
import argparse
import sys

from .data_report import add_kind, options_of

_DESCRIPTION = """\
Check a segmentation data set that "mmkcla data" wrote (or one of that layout: images/{train,val,test},
masks/{train,val,test}): each image has a mask of its size, masks hold the labels of the classes (0 and 1 without a
manifest), all files can be decoded and are those of manifest.json by sha256, its counts are those of the files it
lists, no image is in two splits."""
_EPILOG = """\
Exit code 0: fine; 1: problems, a line each; 2 and one line "error: ...": it cannot be checked.

  mmkcla data verify data/isic2017"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """The sub-command."""
    parser = add_kind(kinds, 'verify', 'check a prepared segmentation data set', _DESCRIPTION, _EPILOG, run)
    parser.add_argument('root', metavar='ROOT', help='the folder with images and masks')
    parser.add_argument('--quick', action='store_true',
                        help='pairs and file sizes, and a look into 16 masks only; decodes and hashes nothing else')
    parser.add_argument('--near', action='store_true', help='also find images of two splits that look the same')
    parser.add_argument('--workers', type=int, metavar='N', help='threads (default: one a processor)')


def run(args: argparse.Namespace) -> int:
    """Check; the exit code is 1 if there are problems."""
    from ..datasets.segmentation.verify import check, summary
    report = check(**options_of(args, 'root', 'quick', 'near', 'workers'))
    for problem in report.problems:
        print(problem)
    for note in report.notes:
        print(f'note: {note}', file=sys.stderr)
    print(summary(report))
    return 1 if report.problems else 0
