"""``python -m mmkcla`` is the command ``mmkcla``."""
import sys

from .cli import main

if __name__ == '__main__':
    sys.exit(main())
