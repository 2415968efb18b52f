"""Prepare ISIC 2017 (part 1, lesion segmentation) for training, from the files as downloaded."""
import sys

from mmkcla.datasets.segmentation.converters.command import main
from mmkcla.datasets.segmentation.converters.isic import ISIC2017

if __name__ == '__main__':
    sys.exit(main(ISIC2017))
