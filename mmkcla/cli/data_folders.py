"""``mmkcla data binary-seg``: your own folders of images and masks."""
import argparse
from pathlib import Path

from ..errors import UserError
from .data_report import add_conversion_options, add_kind, options_of, run_conversion

_DESCRIPTION = """\
Prepare your own images and masks for training. Written are images/{train,val,test}, masks/{train,val,test} (PNG) and
manifest.json.

Pairs: images and masks are paired by file name without extension, in sub-folders too. A common prefix or suffix of the
masks (a_mask.png) is detected and reported. An image in a sub-folder is named after its path, with __ instead of /.

Masks of two classes: values 0 and 1, or 0 and 255; other grey values need --threshold. Masks of more classes need
--classes, --num-classes or --palette, and contain the labels 0 to K-1 (255: ignore), the indices of a palette PNG, or
the colours of --palette."""
_EPILOG = """\
The same options give the same bytes; a data set that already exists with the same options is left unchanged. To resume
an interrupted conversion, run the same command again. Pairs with problems are skipped and reported. On an error one
line "error: ..." is printed and the exit code is 2. docs/own-data.md shows a config.

  mmkcla data binary-seg photos --out data/photos                    # photos/images and photos/masks, 8:1:1
  mmkcla data binary-seg scans labels --out data/scans --threshold 127 --groups '^(patient[0-9]+)' --split 7:1:2
  mmkcla data binary-seg scans labels --out data/scans --folds 5 --groups patients.csv
  mmkcla data binary-seg tiles labels --out data/tiles --palette colours.txt"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """Add the sub-command."""
    parser = add_kind(kinds, 'binary-seg', 'your own folders of images and masks', _DESCRIPTION, _EPILOG, run)
    parser.add_argument('source', nargs='+', metavar='FOLDER',
                        help='the folder of images and the folder of masks, or one folder with images/ and masks/')
    parser.add_argument('--out', required=True, metavar='DIR', help='output folder')
    splits = parser.add_argument_group('splits')
    splits.add_argument('--split', metavar='SPLIT',
                        help='a ratio: 8:1:1 (train, val and test) or 7:3 (train and test); given: use the sub-folders '
                             'train, val, test; train or test: put all images there (default: given if both folders '
                             'have these sub-folders, else 8:1:1)')
    splits.add_argument('--seed', type=int, default=0,
                        help='random seed of a ratio and of folds (default: %(default)s)')
    splits.add_argument('--split-file', metavar='FILE',
                        help='instead of --split: lines "split name", or JSON {"train": [names], "val": [names], '
                             '"test": [names]}, or a folder with train.txt, val.txt, test.txt')
    splits.add_argument('--groups', metavar='GROUPS',
                        help='images that must stay in one split, e.g. all of one patient: a regular expression with '
                             'one capturing group, applied to the names, or a file with lines "name,group"')
    splits.add_argument('--folds', type=int, metavar='K',
                        help='K-fold cross-validation: all images except those of test are written to train; '
                             'folds.json lists the names of each fold')
    masks = parser.add_argument_group('masks')
    masks.add_argument('--threshold', type=int, metavar='T',
                       help='two classes: values above T (0 to 254) are foreground')
    masks.add_argument('--classes', nargs='+', metavar='NAME',
                       help='class names in label order, including the background; with more than two, masks contain '
                            'labels')
    masks.add_argument('--num-classes', type=int, metavar='K', help='masks contain labels 0 to K-1 and 255 (ignore)')
    masks.add_argument('--palette', metavar='FILE',
                       help='class colours: lines "name,#rrggbb", or JSON {"name": "#rrggbb"}; pixels of the class '
                            'ignore are not evaluated')
    add_conversion_options(parser)


def run(args: argparse.Namespace) -> int:
    """Convert."""
    if len(args.source) > 2:
        raise UserError(f'{len(args.source)} folders given; give the folder of images and the folder of masks, or one '
                        'folder with images/ and masks/')
    images, masks = args.source if len(args.source) == 2 else (Path(args.source[0], 'images'),
                                                               Path(args.source[0], 'masks'))
    from ..datasets.segmentation.converters.folders import convert_folders
    options = options_of(args, 'split', 'seed', 'split_file', 'groups', 'folds', 'threshold', 'num_classes', 'palette',
                         'workers', 'strict', 'overwrite')
    classes = args.classes[0] if args.classes and len(args.classes) == 1 else args.classes
    return run_conversion(lambda: convert_folders(images, masks, args.out, classes=classes, **options), args.out)
