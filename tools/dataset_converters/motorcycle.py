"""Write a stereo data set from one rectified pair: ``python tools/dataset_converters/motorcycle.py --help``
(the same as ``mmkcla data motorcycle``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'motorcycle', *sys.argv[1:]]))
