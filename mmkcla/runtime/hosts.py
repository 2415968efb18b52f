"""Import the host libraries without their irrelevant import messages."""
import importlib
import io
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ..compat import DISTRIBUTIONS, loaded_versions, version_notes
from ..errors import UserError
from ..utils.signals import say
from ..utils.text import note, one_line

if TYPE_CHECKING:
    from mmengine.config import Config

HOSTS = ('mmdet', 'mmseg', 'mmpretrain')
# lines printed when onedl-mmdet, onedl-mmseg and onedl-mmpretrain are imported, and mmengine's log lines about its own
# deprecated names when a checkpoint hook starts
_NOISE = re.compile('|'.join((
    'The value of random seed in the checkpoint',  # named among the resumed values
    'Could not import OneDL',
    'Line NMS is not compiled',
    '^This model cannot work without CUDA, therefore you need to recompile',
    '^To make sure that the package is compiled with CUDA support',
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias',
    'Resumed iteration number is not divisible',  # hooks/exact_resume.py restores the gradients, or says so
    # the progress of pycocotools; reading annotations takes a moment after the checks of the data
    '^loading annotations into memory',
    r'^(Done|DONE) \(t=',
    '^creating index',
    '^index created!',
    '^Loading and preparing results',
    '^Running per image evaluation',
    '^Evaluate annotation type',
    '^Accumulating evaluation results',
)))
# what mmengine's runner logs at the start: for the log file only
_FOR_THE_FILE = re.compile('^(\n-+\nSystem environment:|Config:\n|Hooks will be executed in the following order'
                           '|Distributed training is not used)')
_NOISE_WARNINGS = (
    'Fail to import ``MultiScaleDeformableAttention``',
    'The draw is False, it means that the hook for visualization',
    'Warning: The (bbox|polygon) is out of bounds',
    'Setting (OMP|MKL)_NUM_THREADS environment variable for each process',
    '`broadcast_buffers` is deprecated',
)


class _WithoutNoise(io.TextIOBase):
    """Forward complete lines to a stream, except for noise."""

    def __init__(self, stream) -> None:
        self.stream = stream
        self.line = ''

    def write(self, text: str) -> int:
        self.line += text
        *whole, self.line = self.line.split('\n')
        for line in whole:
            if not _NOISE.search(line):
                self.stream.write(line + '\n')
        return len(text)

    def flush(self) -> None:
        if self.line and not _NOISE.search(self.line):  # a progress bar
            self.stream.write(self.line)
            self.line = ''
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()


@contextmanager
def without_noise() -> Iterator[None]:
    """Suppress the known noise on stdout; everything else is printed."""
    for message in _NOISE_WARNINGS:
        warnings.filterwarnings('ignore', message=message)
    before = sys.stdout
    sys.stdout = filtered = _WithoutNoise(before)
    try:
        yield
    finally:
        sys.stdout = before
        filtered.flush()


def short_terminal(logger: logging.Logger) -> None:
    """Keep the environment, the whole config and the table of hooks off the terminal if there is a log file, and name
    the file."""
    files = [handler.baseFilename for handler in logger.handlers if isinstance(handler, logging.FileHandler)]
    if not files:
        return
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(lambda record: not _FOR_THE_FILE.search(record.getMessage()))
    logger.info(f'log file, with the environment and the complete config: {files[0]}')


def quiet_logger(logger: logging.Logger) -> None:
    """Filter the known noise out of the log of a run. A handler that cannot write says so once; logging would print a
    traceback for each line."""
    logger.addFilter(lambda record: not _NOISE.search(record.getMessage()))
    for handler in logger.handlers:
        handler.handleError = partial(_report_once, handler)  # type: ignore[method-assign]


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Report in one line that the thread of TensorBoard cannot write, instead of a traceback. The error reaches the
    training with its next log line, with the name of the file."""
    before = threading.excepthook

    def report(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value
        if not isinstance(error, OSError) or not type(failed.thread).__module__.startswith('tensorboard'):
            before(failed)
            return
        file = getattr(getattr(failed.thread, '_record_writer', None), '_writer', None)
        error.filename = error.filename or getattr(file, 'name', None) or getattr(file, 'filename', None)
        say(f'warning: cannot write the TensorBoard log {error.filename or ""} ({error.strerror})')

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before


def _report_once(handler: logging.Handler, _record: logging.LogRecord) -> None:
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    where = getattr(handler, 'baseFilename', 'the terminal')
    say(f'warning: cannot write the log to {where} ({one_line(sys.exc_info()[1], 160)}); further lines may be missing')


def import_hosts(hosts: list[str], with_models: bool = False) -> list[str]:
    """Import host packages and register all their modules, with mmcv's operators available.

    Args:
        hosts: names from :data:`HOSTS`.
        with_models: also import the models of this package, which extend those of the hosts.

    Returns:
        One line for each package with an untested version.

    Raises:
        UserError: a host is not installed, or cannot be imported.
    """
    from ..ops import install
    with without_noise():
        install()
        for host in hosts:
            try:
                importlib.import_module(f'{host}.utils').register_all_modules(init_default_scope=False)
            except ModuleNotFoundError as error:
                raise UserError(_not_installed(host, error.name or '')) from error
            except (ImportError, AssertionError) as error:  # the hosts assert the versions of mmcv and mmengine
                raise UserError(f'cannot import {host}: {one_line(error)}') from error
        if with_models:
            try:
                from .. import registry
                for own in (registry.MODELS, *(() if hosts else (registry.METRICS, registry.DATASETS))):
                    own.import_from_location()
            except ModuleNotFoundError as error:
                raise UserError(_not_installed('mmkcla.models', error.name or '')) from error
    return version_notes(loaded_versions('torch', 'mmengine', 'mmcv', *hosts))


def _not_installed(host: str, missing: str) -> str:
    package = missing.split('.')[0]
    if package in DISTRIBUTIONS:
        return f'{package} is not installed: pip install {DISTRIBUTIONS[package]} (or the original {package})'
    return f'cannot import {host}: it needs the package {package!r}, which is not installed'


def hosts_of(config: 'Config') -> list[str]:
    """Return the host packages a config uses: its ``default_scope`` first, then those referenced as ``mmseg.X``."""
    named = re.findall(rf"'({'|'.join(HOSTS)})\.\w", str(config.to_dict()))
    scope = config.get('default_scope')
    return list(dict.fromkeys(([scope] if scope in HOSTS else []) + named))


def prepare_hosts(config: 'Config') -> str | None:
    """Import the hosts that a config needs; return its main host, or None for a config of mmengine only."""
    hosts = hosts_of(config)
    for line in import_hosts(hosts, with_models="'mmkcla." in str(config.get('model'))):
        note(line)
    return hosts[0] if hosts else None
