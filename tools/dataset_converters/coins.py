"""Write a small COCO instance dataset of 24 photographed coins; needs no download (``pip install 'mmkcla[demo]'``)."""
import argparse
import sys

from mmkcla.datasets.detection.coins import convert
from mmkcla.errors import UserError


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Write a small COCO instance dataset (one category: coin) from coins.png, a photograph of 24 '
                    'coins that ships with scikit-image. Real data without a download. Train and val are random '
                    "square crops of the photograph's left and right part; no pixel and no coin is in both.",
        epilog='A dataset already written with the same options is left alone. The same options give the same bytes. '
               'Exit code 2 and one line "error: ..." if something is wrong. Example: '
               'python tools/dataset_converters/coins.py --out data/coins',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--out', default='data/coins', metavar='DIR',
                        help='folder to write: train2017/, val2017/ and annotations/ go in it')
    parser.add_argument('--train-images', type=int, default=64, metavar='N', help='training crops')
    parser.add_argument('--val-images', type=int, default=16, metavar='N', help='validation crops')
    parser.add_argument('--crop', type=int, default=128, metavar='PIXELS', help='side of the crops, 80 to 142')
    parser.add_argument('--seed', type=int, default=0, help="seed of the crops' positions")
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a coins dataset that was written with other options, or is damaged')
    return parser.parse_args()


def main() -> int:
    try:
        print(convert(**vars(parse_args())))
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    return 0


if __name__ == '__main__':
    sys.exit(main())
