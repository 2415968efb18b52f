"""Run ``mmkcla`` as ``python -m mmkcla``."""
import sys

from .cli import main

if __name__ == '__main__':
    sys.exit(main())
