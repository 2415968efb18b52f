"""Check a prepared data set of two classes: pairs, sizes, mask values, contents, duplicates across splits."""
import argparse
import sys

from mmkcla.datasets.segmentation.verify import check, summary
from mmkcla.errors import UserError


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Check a data set that tools/dataset_converters wrote (or one of that layout: '
                    'images/{train,val,test}, masks/{train,val,test}): each image has a mask of its size, masks hold 0 '
                    'and 1, all files can be decoded and are those of manifest.json by sha256, its counts are those of '
                    'the files it lists, no image is in two splits.',
        epilog='Exit code 0: fine; 1: problems, a line each; 2 and one line "error: ...": it cannot be checked. '
               'Example: python tools/misc/verify_dataset.py data/isic2017')
    parser.add_argument('root', metavar='ROOT', help='the folder with images and masks')
    parser.add_argument('--quick', action='store_true',
                        help='pairs and file sizes, and a look into 16 masks only; decodes and hashes nothing else')
    parser.add_argument('--near', action='store_true', help='also find images of two splits that look the same')
    parser.add_argument('--workers', type=int, metavar='N', help='threads (default: one a processor)')
    return parser.parse_args()


def main() -> int:
    try:
        report = check(**vars(parse_args()))
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    for problem in report.problems:
        print(problem)
    for note in report.notes:
        print(f'note: {note}', file=sys.stderr)
    print(summary(report))
    return 1 if report.problems else 0


if __name__ == '__main__':
    sys.exit(main())
