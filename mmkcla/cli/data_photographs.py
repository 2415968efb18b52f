"""``mmkcla data coins | samples | motorcycle``: data sets made of photographs that ship with scikit-image."""
import argparse

from .data_report import add_kind, options_of

_SAME = """\
The same options give the same bytes; a data set already written with them is left unchanged. Exit code 2 and one line
"error: ..." if something is wrong. Needs scikit-image (pip install 'mmkcla[demo]'), and no download.

"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """A sub-command each."""
    _add_coins(kinds)
    _add_samples(kinds)
    _add_motorcycle(kinds)


def _add_coins(kinds: 'argparse._SubParsersAction') -> None:
    parser = add_kind(kinds, 'coins', 'a COCO data set of 24 photographed coins', """\
Write a small COCO instance data set (one category: coin) from coins.png, a photograph of 24 coins that ships with
scikit-image. Train and val are random square crops of the photograph's left and right part; no pixel and no coin is in
both.""", f'{_SAME}  mmkcla data coins --out data/coins', run_coins)
    parser.add_argument('--out', default='data/coins', metavar='DIR',
                        help='folder to write: train2017/, val2017/ and annotations/ go in it (default: %(default)s)')
    parser.add_argument('--train-images', type=int, default=64, metavar='N',
                        help='training crops (default: %(default)s)')
    parser.add_argument('--val-images', type=int, default=16, metavar='N',
                        help='validation crops (default: %(default)s)')
    parser.add_argument('--crop', type=int, default=128, metavar='PIXELS',
                        help='side of the crops, 80 to 142 (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help="seed of the crops' positions (default: %(default)s)")
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a coins data set that was written with other options, or is damaged')


def run_coins(args: argparse.Namespace) -> int:
    """Write the coins."""
    from ..datasets.detection.coins import convert
    print(convert(**options_of(args, 'out', 'train_images', 'val_images', 'crop', 'seed', 'overwrite')))
    return 0


def _add_samples(kinds: 'argparse._SubParsersAction') -> None:
    parser = add_kind(kinds, 'samples', 'a small download in the layout of a medical data set', """\
Write a small download in the layout of ISIC 2017, ISIC 2018 or Kvasir-SEG (its zip files, folders and file names), made
of crops of a photograph that ships with scikit-image, for the real converter to read. Test is of the photograph's right
part, train and val are of the left one; no pixel is in both. Some images are stored turned, with EXIF data that say so.
Beside kvasir-seg.zip there is kvasir_split.json, for --split-file of "mmkcla data kvasir".""", f"""\
{_SAME}  mmkcla data samples --out data/raw/coins_isic2017
  mmkcla data isic2017 data/raw/coins_isic2017 --out data/coins_isic2017""", run_samples)
    parser.add_argument('--dataset', default='isic2017', metavar='NAME',
                        help='whose layout: isic2017, isic2018 or kvasir_seg (default: %(default)s)')
    parser.add_argument('--out', required=True, metavar='DIR', help='folder to write the zip files to')
    parser.add_argument('--count', type=int, nargs=3, default=(48, 8, 16), metavar=('TRAIN', 'VAL', 'TEST'),
                        help='how many images (default: 48 8 16)')
    parser.add_argument('--photograph', default='coins', metavar='NAME',
                        help='coins (grey, the coins are the foreground) or ihc (stained tissue, in colour) '
                             '(default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0,
                        help="seed of the crops' positions and sizes (default: %(default)s)")
    parser.add_argument('--overwrite', action='store_true', help='replace a sample that was written with other options')


def run_samples(args: argparse.Namespace) -> int:
    """Write a sample download."""
    from ..datasets.segmentation.samples import make_samples
    print(make_samples(**options_of(args, 'out', 'dataset', 'count', 'photograph', 'seed', 'overwrite')))
    return 0


def _add_motorcycle(kinds: 'argparse._SubParsersAction') -> None:
    parser = add_kind(kinds, 'motorcycle', 'a stereo data set of one rectified pair', """\
Write the motorcycle pair of Middlebury 2014, which ships with scikit-image, as a stereo data set: the left half of both
views is for training, the right half for testing; no pixel is in both.""",
                      f'{_SAME}  mmkcla data motorcycle --out data/motorcycle', run_motorcycle)
    parser.add_argument('--out', default='data/motorcycle', metavar='DIR',
                        help='folder to write: train/ and test/ go in it, each with left/, right/ and disparity/ '
                             '(default: %(default)s)')
    parser.add_argument('--scale', type=int, default=2,
                        help='make the images smaller by 1, 2 or 4 (default: %(default)s)')
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a motorcycle data set that was written with other options, or is damaged')


def run_motorcycle(args: argparse.Namespace) -> int:
    """Write the stereo pair."""
    from ..stereo.motorcycle import convert
    print(convert(**options_of(args, 'out', 'scale', 'overwrite')))
    return 0
