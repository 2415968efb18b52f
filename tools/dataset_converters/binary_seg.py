"""Prepare your own images and masks: ``python tools/dataset_converters/binary_seg.py --help``
(the same as ``mmkcla data binary-seg``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'binary-seg', *sys.argv[1:]]))
