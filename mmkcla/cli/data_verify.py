"""``mmkcla data verify``: check a prepared segmentation data set."""
import argparse
import sys

from .data_report import add_kind, options_of

_DESCRIPTION = """\
Check a segmentation data set written by "mmkcla data", or any in the same layout: images/{train,val,test} and
masks/{train,val,test}. Checked: each image has a mask of the same size; masks contain only the labels of the classes
(0 and 1 without a manifest); all files can be decoded; files and counts match manifest.json (sha256); no image is in
two splits."""
_EPILOG = """\
Exit codes: 0: no problems; 1: problems, one line each; 2: the check could not run (one line "error: ...").

  mmkcla data verify data/isic2017"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """Add the sub-command."""
    parser = add_kind(kinds, 'verify', 'check a prepared segmentation data set', _DESCRIPTION, _EPILOG, run)
    parser.add_argument('root', metavar='ROOT', help='folder with images/ and masks/')
    parser.add_argument('--quick', action='store_true',
                        help='check only pairs, file sizes and 16 masks; decode and hash nothing else')
    parser.add_argument('--near', action='store_true', help='also find near-duplicate images in different splits')
    parser.add_argument('--workers', type=int, metavar='N', help='number of threads (default: one per processor)')


def run(args: argparse.Namespace) -> int:
    """Check; return 1 if there are problems."""
    from ..datasets.segmentation.verify import check, summary
    report = check(**options_of(args, 'root', 'quick', 'near', 'workers'))
    for problem in report.problems:
        print(problem)
    for note in report.notes:
        print(f'note: {note}', file=sys.stderr)
    print(summary(report))
    return 1 if report.problems else 0
