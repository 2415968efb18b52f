"""Convert released weights: ``python tools/model_converters/reference_to_mmkcla.py --help`` (the same as
``mmkcla convert``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['convert', *sys.argv[1:]]))
