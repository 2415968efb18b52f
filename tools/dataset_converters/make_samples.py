"""Write a small download in the layout of ISIC 2017, ISIC 2018 or Kvasir-SEG, made of a photograph (no download)."""
import argparse
import sys

from mmkcla.datasets.segmentation.samples import DATASETS, PHOTOGRAPHS, make_samples
from mmkcla.errors import UserError


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Write a small download in the layout of a medical data set (its zip files, folders and file '
                    'names), made of crops of a photograph that ships with scikit-image, for the real converter to '
                    "read. Test is of the photograph's right part, train and val are of the left one; no pixel is in "
                    'both. Some images are stored turned, with EXIF data that say so. Beside kvasir-seg.zip there '
                    'is kvasir_split.json, for --split-file of kvasir_seg.py.',
        epilog='The same options give the same bytes. Exit code 2 and one line "error: ..." if something is wrong. '
               'Example: python tools/dataset_converters/make_samples.py --out data/raw/coins_isic2017 && '
               'python tools/dataset_converters/isic2017.py data/raw/coins_isic2017 --out data/coins_isic2017',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--dataset', choices=DATASETS, default='isic2017', help='whose layout')
    parser.add_argument('--out', required=True, metavar='DIR', help='folder to write the zip files to')
    parser.add_argument('--count', type=int, nargs=3, default=(48, 8, 16), metavar=('TRAIN', 'VAL', 'TEST'),
                        help='how many images')
    parser.add_argument('--photograph', choices=PHOTOGRAPHS, default='coins',
                        help='coins (grey, the coins are the foreground) or ihc (stained tissue, in colour)')
    parser.add_argument('--seed', type=int, default=0, help="seed of the crops' positions and sizes")
    parser.add_argument('--overwrite', action='store_true', help='replace a sample that was written with other options')
    return parser.parse_args()


def main() -> int:
    try:
        print(make_samples(**vars(parse_args())))
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    return 0


if __name__ == '__main__':
    sys.exit(main())
