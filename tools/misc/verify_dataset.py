"""Check a prepared segmentation data set: ``python tools/misc/verify_dataset.py --help``
(the same as ``mmkcla data verify``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'verify', *sys.argv[1:]]))
