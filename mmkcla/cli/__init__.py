"""The ``mmkcla`` command. Each sub-command is a module with ``SUMMARY``, ``add_arguments`` and ``run``.

Heavy packages are imported only when a sub-command runs, so ``--help`` is fast.
"""
import argparse
import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ..errors import UserError
from ..utils.text import one_line
from ..version import __version__
from .errors import guarded

COMMANDS = ('train', 'test', 'infer', 'seeds', 'sweep', 'convert', 'plan', 'analyse', 'benchmark', 'export', 'data',
            'demo', 'doctor')


class _Command(argparse.ArgumentParser):
    """A parser that takes options between the values of an argument: ``infer CONFIG FILE --out-dir out a.jpg``."""

    _intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like argparse's, but intermixed, except for commands with sub-commands, where argparse refuses it."""
        if self._intermixed or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixed = False


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``mmkcla`` with all sub-commands."""
    parser = argparse.ArgumentParser(prog='mmkcla', description='Layer attention for OpenMMLab.')
    parser.add_argument('--version', action='version', version=f'mmkcla {__version__}')
    commands = parser.add_subparsers(dest='command', required=True, metavar='command', parser_class=_Command)
    for name in COMMANDS:
        module = _load(name)
        command = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(command)
        command.add_argument('--traceback', action='store_true',
                             help='show the traceback of an error (or set MMKCLA_TRACEBACK=1)')
        command.set_defaults(run=module.run)
    return parser


def _load(name: str) -> Any:
    """The module of a command; without the packages that it imports at its top, a command that says so."""
    try:
        return importlib.import_module(f'.{name}', __package__)
    except ImportError as error:
        reason = one_line(error)
        return SimpleNamespace(SUMMARY=f'not available: {reason}', run=lambda _: _unavailable(name, reason),
                               add_arguments=lambda parser: parser.add_argument('rest', nargs='*'))


def _unavailable(name: str, reason: str) -> int:
    raise UserError(f'mmkcla {name} cannot start: {reason}; run mmkcla doctor')


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mmkcla`` with ``argv`` (default: the arguments of the process).

    Returns:
        The exit code: 0 on success, 1 if part of the work failed, 2 for an error that the user can fix (one line on
        stderr). Internal errors are raised.
    """
    parser = build_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown and not hasattr(args, 'rest'):  # the options of an unavailable command are unknown
        parser.error(f'unrecognized arguments: {" ".join(unknown)}')
    return guarded(args.run, args, args.traceback)
