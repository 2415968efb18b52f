"""Prepare Kvasir-SEG (polyp segmentation) for training, from the files as downloaded."""
import sys

from mmkcla.datasets.segmentation.converters.command import main
from mmkcla.datasets.segmentation.converters.kvasir import KVASIR_SEG

if __name__ == '__main__':
    sys.exit(main(KVASIR_SEG))
