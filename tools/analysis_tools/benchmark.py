"""Compare the cost of configs: see ``--help`` (the same as ``mmkcla benchmark model``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['benchmark', 'model', *sys.argv[1:]]))
