"""``mmkcla data binary-seg``: own data, any folder of images and any folder of masks."""
import argparse
from pathlib import Path

from ..errors import UserError
from .data_report import add_conversion_options, add_kind, options_of, run_conversion

_DESCRIPTION = """\
Prepare your own images and masks for training: images/{train,val,test}, masks/{train,val,test} (PNG) and manifest.json.

Pairs. Files are paired by name without suffix, sub-folders included; text before or after the names of masks
(a_mask.png) is found and reported. An image in a sub-folder is named by its path, with __ for /.

Masks. Of two classes: 0 and 1, or 0 and 255; other grey values need --threshold. Of more: --classes, --num-classes or
--palette; they hold the labels 0 to K-1 (255: ignore), indices of a palette PNG, or declared colours."""
_EPILOG = """\
The same options give the same bytes; a data set already written with them is left unchanged. A conversion that was
interrupted resumes when started again. Pairs with problems are left out and named. Exit code 2 and one line
"error: ..." if something is wrong. docs/own-data.md shows a config.

  mmkcla data binary-seg photos --out data/photos                    # photos/images and photos/masks, 8:1:1
  mmkcla data binary-seg scans labels --out data/scans --threshold 127 --groups '^(patient[0-9]+)' --split 7:1:2
  mmkcla data binary-seg scans labels --out data/scans --folds 5 --groups patients.csv
  mmkcla data binary-seg tiles labels --out data/tiles --palette colours.txt"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """The sub-command."""
    parser = add_kind(kinds, 'binary-seg', 'own data: any folders of images and masks', _DESCRIPTION, _EPILOG, run)
    parser.add_argument('source', nargs='+', metavar='FOLDER',
                        help='the folder of images and the folder of masks; or one folder that has images/ and masks/')
    parser.add_argument('--out', required=True, metavar='DIR', help='folder to write')
    splits = parser.add_argument_group('splits')
    splits.add_argument('--split', metavar='SPLIT',
                        help='a ratio: 8:1:1 (train, val and test), 7:3 (train and test); given: by the sub-folders '
                             'train, val, test; train or test: all images (default: given where both folders have such '
                             'sub-folders, else 8:1:1)')
    splits.add_argument('--seed', type=int, default=0, help='of a ratio and of folds (default: %(default)s)')
    splits.add_argument('--split-file', metavar='FILE',
                        help='in place of --split: lines "split name", or JSON {"train": [names], "val": [names], '
                             '"test": [names]}, or a folder with train.txt, val.txt, test.txt')
    splits.add_argument('--groups', metavar='GROUPS',
                        help='what belongs together (patients) and is never divided: a regular expression with one '
                             'capturing group for names, or a file with lines "name,group"')
    splits.add_argument('--folds', type=int, metavar='K',
                        help='K-fold cross-validation: all images but those of test go to train; folds.json lists the '
                             'names of each fold')
    masks = parser.add_argument_group('masks')
    masks.add_argument('--threshold', type=int, metavar='T', help='of two classes: foreground is above T (0 to 254)')
    masks.add_argument('--classes', nargs='+', metavar='NAME',
                       help='names in the order of the labels, the background included; more than two: masks of labels')
    masks.add_argument('--num-classes', type=int, metavar='K', help='masks hold the labels 0 to K-1, and 255 (ignore)')
    masks.add_argument('--palette', metavar='FILE',
                       help='colours of the classes: lines "name,#rrggbb", or JSON {"name": "#rrggbb"}; pixels of the '
                            'name ignore do not count')
    add_conversion_options(parser)


def run(args: argparse.Namespace) -> int:
    """Convert."""
    if len(args.source) > 2:
        raise UserError(f'{len(args.source)} folders: give the folder of images and the folder of masks, or one folder '
                        'that has images/ and masks/')
    images, masks = args.source if len(args.source) == 2 else (Path(args.source[0], 'images'),
                                                               Path(args.source[0], 'masks'))
    from ..datasets.segmentation.converters.folders import convert_folders
    options = options_of(args, 'split', 'seed', 'split_file', 'groups', 'folds', 'threshold', 'num_classes', 'palette',
                         'workers', 'strict', 'overwrite')
    classes = args.classes[0] if args.classes and len(args.classes) == 1 else args.classes
    return run_conversion(lambda: convert_folders(images, masks, args.out, classes=classes, **options), args.out)
