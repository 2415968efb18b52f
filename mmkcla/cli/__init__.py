"""The ``mmkcla`` command. Each sub-command is a module with ``SUMMARY``, ``add_arguments`` and ``run``.

Heavy packages are imported only when a sub-command runs, so ``--help`` is fast.
"""
import argparse
import importlib
from collections.abc import Sequence

from ..version import __version__
from .errors import guarded

COMMANDS = ('train', 'test', 'infer', 'seeds', 'sweep', 'convert', 'plan', 'analyse', 'benchmark', 'data', 'demo')


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``mmkcla`` with all sub-commands."""
    parser = argparse.ArgumentParser(prog='mmkcla', description='Layer attention for OpenMMLab.')
    parser.add_argument('--version', action='version', version=f'mmkcla {__version__}')
    commands = parser.add_subparsers(dest='command', required=True, metavar='command')
    for name in COMMANDS:
        module = importlib.import_module(f'.{name}', __package__)
        command = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(command)
        command.add_argument('--traceback', action='store_true',
                             help='show the traceback of an error (or set MMKCLA_TRACEBACK=1)')
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mmkcla`` with ``argv`` (default: the arguments of the process).

    Returns:
        The exit code: 0 on success, 1 if part of the work failed, 2 for an error that the user can fix (one line on
        stderr). Internal errors are raised.
    """
    args = build_parser().parse_args(argv)
    return guarded(args.run, args, args.traceback)
