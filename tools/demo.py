"""Run a demo: ``python tools/demo.py --help`` (the same as ``mmkcla demo``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['demo', *sys.argv[1:]]))
