"""Prepare Kvasir-SEG (polyp segmentation): ``python tools/dataset_converters/kvasir_seg.py --help``
(the same as ``mmkcla data kvasir``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'kvasir', *sys.argv[1:]]))
