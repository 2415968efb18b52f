"""Prepare ISIC 2017 (part 1, lesion segmentation): ``python tools/dataset_converters/isic2017.py --help``
(the same as ``mmkcla data isic2017``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'isic2017', *sys.argv[1:]]))
