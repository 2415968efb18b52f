"""Measure the contribution of earlier layers: see ``--help`` (the same as ``mmkcla analyse decay``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['analyse', 'decay', *sys.argv[1:]]))
