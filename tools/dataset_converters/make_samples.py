"""Write a small sample in the layout of a medical data set: ``python tools/dataset_converters/make_samples.py --help``
(the same as ``mmkcla data samples``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['data', 'samples', *sys.argv[1:]]))
