"""Write a stereo data set out of one rectified pair; needs no download (``pip install 'mmkcla[demo]'``)."""
import argparse
import sys

from mmkcla.errors import UserError
from mmkcla.stereo.motorcycle import convert


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Write the motorcycle pair of Middlebury 2014, which ships with scikit-image, as a stereo data '
                    'set: the left half of both views is for training, the right half for testing; no pixel is in '
                    'both.',
        epilog='A data set already written with the same options is left alone. The same options give the same bytes. '
               'Exit code 2 and one line "error: ..." if something is wrong. Example: '
               'python tools/dataset_converters/motorcycle.py --out data/motorcycle',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--out', default='data/motorcycle', metavar='DIR',
                        help='folder to write: train/ and test/ go in it, each with left/, right/ and disparity/')
    parser.add_argument('--scale', type=int, default=2, help='make the images smaller by 1, 2 or 4')
    parser.add_argument('--overwrite', action='store_true',
                        help='replace a motorcycle data set that was written with other options, or is damaged')
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
