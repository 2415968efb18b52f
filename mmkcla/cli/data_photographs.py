"""``mmkcla data coins | samples | motorcycle``: data sets made of photographs that ship with scikit-image."""
import argparse

from .data_report import add_kind, options_of

_SAME = """\
The same options give the same bytes; a data set that already exists with the same options is left unchanged. On an
error one line "error: ..." is printed and the exit code is 2. Needs scikit-image (pip install 'mmkcla[demo]'); nothing
is downloaded.

"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """Add one sub-command per data set."""
    _add_coins(kinds)
    _add_samples(kinds)
    _add_motorcycle(kinds)


def _add_coins(kinds: 'argparse._SubParsersAction') -> None:
    parser = add_kind(kinds, 'coins', 'a COCO data set of 24 photographed coins', """\
Write a small COCO instance data set (one category: coin) from coins.png, a photograph of 24 coins that ships with
scikit-image. Train and val are random square crops of the left and right parts of the photograph; they share no pixel
and no coin.""", f'{_SAME}  mmkcla data coins --out data/coins', run_coins)
    parser.add_argument('--out', default='data/coins', metavar='DIR',
                        help='output folder, with train2017/, val2017/ and annotations/ (default: %(default)s)')
    parser.add_argument('--train-images', type=int, default=64, metavar='N',
                        help='number of training crops (default: %(default)s)')
    parser.add_argument('--val-images', type=int, default=16, metavar='N',
                        help='number of validation crops (default: %(default)s)')
    parser.add_argument('--crop', type=int, default=128, metavar='PIXELS',
                        help='side of the square crops, 80 to 142 (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='random seed of the crop positions (default: %(default)s)')
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a coins data set that was written with other options, or is damaged')


def run_coins(args: argparse.Namespace) -> int:
    """Write the coins."""
    from ..datasets.detection.coins import convert
    print(convert(**options_of(args, 'out', 'train_images', 'val_images', 'crop', 'seed', 'overwrite')))
    return 0


def _add_samples(kinds: 'argparse._SubParsersAction') -> None:
    parser = add_kind(kinds, 'samples', 'small sample files in the layout of a medical data set', """\
Write sample files in the layout of ISIC 2017, ISIC 2018 or Kvasir-SEG (the same zip files, folders and file names), as
input for "mmkcla data". The images are crops of a photograph that ships with scikit-image: test crops from its right
part, train and val crops from its left part, without shared pixels. Some images are stored rotated, with an EXIF
orientation. For Kvasir-SEG, kvasir_split.json is written next to kvasir-seg.zip; pass it to "mmkcla data kvasir" with
--split-file.""", f"""\
{_SAME}  mmkcla data samples --out data/raw/coins_isic2017
  mmkcla data isic2017 data/raw/coins_isic2017 --out data/coins_isic2017""", run_samples)
    parser.add_argument('--dataset', default='isic2017', metavar='NAME',
                        help='layout: isic2017, isic2018 or kvasir_seg (default: %(default)s)')
    parser.add_argument('--out', required=True, metavar='DIR', help='output folder of the zip files')
    parser.add_argument('--count', type=int, nargs=3, default=(48, 8, 16), metavar=('TRAIN', 'VAL', 'TEST'),
                        help='number of images per split (default: 48 8 16)')
    parser.add_argument('--photograph', default='coins', metavar='NAME',
                        help='coins (grey, the coins are the foreground) or ihc (stained tissue, in colour) '
                             '(default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0,
                        help='random seed of the crop positions and sizes (default: %(default)s)')
    parser.add_argument('--overwrite', action='store_true', help='replace a sample that was written with other options')


def run_samples(args: argparse.Namespace) -> int:
    """Write the sample files."""
    from ..datasets.segmentation.samples import make_samples
    print(make_samples(**options_of(args, 'out', 'dataset', 'count', 'photograph', 'seed', 'overwrite')))
    return 0


def _add_motorcycle(kinds: 'argparse._SubParsersAction') -> None:
    parser = add_kind(kinds, 'motorcycle', 'a stereo data set of one rectified pair', """\
Write the motorcycle pair of Middlebury 2014, which ships with scikit-image, as a stereo data set. The left half of both
views is for training, the right half for testing; they share no pixel.""",
                      f'{_SAME}  mmkcla data motorcycle --out data/motorcycle', run_motorcycle)
    parser.add_argument('--out', default='data/motorcycle', metavar='DIR',
                        help='output folder, with train/ and test/, each with left/, right/ and disparity/ '
                             '(default: %(default)s)')
    parser.add_argument('--scale', type=int, default=2,
                        help='downscale the images by a factor of 1, 2 or 4 (default: %(default)s)')
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a motorcycle data set that was written with other options, or is damaged')


def run_motorcycle(args: argparse.Namespace) -> int:
    """Write the stereo pair."""
    from ..stereo.motorcycle import convert
    print(convert(**options_of(args, 'out', 'scale', 'overwrite')))
    return 0
