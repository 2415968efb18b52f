"""Write a COCO data set of 24 photographed coins: ``python tools/dataset_converters/coins.py --help``
(the same as ``mmkcla data coins``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'coins', *sys.argv[1:]]))
