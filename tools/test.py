"""Evaluate a checkpoint: ``python tools/test.py --help`` (the same as ``mmkcla test``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['test', *sys.argv[1:]]))
