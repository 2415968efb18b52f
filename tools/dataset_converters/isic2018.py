"""Prepare ISIC 2018 (task 1, lesion segmentation) for training, from the files as downloaded."""
import sys

from mmkcla.datasets.segmentation.converters.command import main
from mmkcla.datasets.segmentation.converters.isic import ISIC2018

if __name__ == '__main__':
    sys.exit(main(ISIC2018))
