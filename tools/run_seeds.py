"""Train and test with several seeds: ``python tools/run_seeds.py --help`` (the same as ``mmkcla seeds``)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed
from mmkcla.cli import main

if __name__ == '__main__':
    sys.exit(main(['seeds', *sys.argv[1:]]))
