"""Turn exceptions that the user can fix into one-line error messages."""
import contextlib
import errno
import itertools
import os
import pickle
import re
import sys
import traceback
import urllib.error
from collections.abc import Callable
from typing import Any

from ..errors import UserError
from ..runtime.watch import LOST_RANK_CODE, end_watch, lost_rank
from ..utils.ranks import rank
from ..utils.signals import describe, exit_code, stop_signals
from ..utils.text import printable

USER_ERROR_CODE = 2
_WORKER = re.compile(r'^Caught (\w+) in DataLoader worker process')
_LAST_LINE = re.compile(r'^(?:\w+\.)*(\w+): (.*)$')
_NOT_REGISTERED = re.compile(r'^(\S+) is not in the (?:(\S+)::)?(\w[\w ]*?) registry')
_IN_HOOK = re.compile(r'^(.*) in <[\w.]*?(\w+) object at', re.DOTALL)  # as mmengine names the hook
_SHAPES = re.compile('shapes cannot be multiplied|to have \\d+ channels|must match the size of tensor|'
                     r'Given groups=|running_mean should contain|normalized_shape')
_HOSTS = ('mmdet', 'mmseg', 'mmpretrain', 'mmcv')
_FAILURES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, RuntimeError)
_FIXABLE_ERRNO = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EFBIG,
                  errno.ESTALE)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIXABLE_OS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
# raised by constructors that are given an impossible value
_OF_VALUES = (KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError)
_WORKER_DIED = re.compile(r'DataLoader worker \(pid.*(exited unexpectedly|killed by signal)')
# what gloo and NCCL raise when another process does not take part
_COLLECTIVE = re.compile(r'gloo|NCCL|ProcessGroup|Connection (closed|reset|refused)|Broken pipe|Socket Timeout', re.I)


def guarded(run: Callable[[Any], int | None], args: Any, with_traceback: bool = False) -> int:
    """Call ``run(args)``. On an error that the user can fix, print one line ``error: …`` to stderr and return 2, or
    the exit code of the :class:`~mmkcla.errors.UserError`. On a signal (:mod:`mmkcla.utils.signals`), print one line
    and return 128 + its number.

    Args:
        run: the sub-command; returns the exit code (None is 0).
        args: passed to ``run``.
        with_traceback: print the traceback as well. The environment variable ``MMKCLA_TRACEBACK=1`` does the same.
    """
    with stop_signals():
        return _guarded(run, args, with_traceback)


def _guarded(run: Callable[[Any], int | None], args: Any, with_traceback: bool) -> int:
    ending = 'finished'
    try:
        return run(args) or 0
    except KeyboardInterrupt as stop:  # its message says how to resume
        ending = describe(stop)
        if rank() == 0:
            with contextlib.suppress(OSError):  # the terminal may be gone
                print(ending, file=sys.stderr, flush=True)
        return exit_code(stop)
    except Exception as error:
        line = explain(error)
        lost = None if line else explain_lost_rank(error)
        line = ending = line or lost
        if line is None:
            ending = f'{type(error).__name__}: {_one_line(str(error))}'
            raise
        if with_traceback or os.environ.get('MMKCLA_TRACEBACK', '0') not in ('', '0'):
            traceback.print_exc()
        line = printable(line)
        number = os.environ.get('RANK', '0')
        print(f'error: {line}' if number == '0' else f'error (rank {number}): {line}', file=sys.stderr)
        if lost:
            return LOST_RANK_CODE
        return error.exit_code if isinstance(error, UserError) else USER_ERROR_CODE
    finally:
        end_watch(ending)
        _leave_process_group()


def explain(error: BaseException) -> str | None:
    """Return one line for an error that the user can fix, None for an internal error."""
    text = str(error)
    if worker := _WORKER.match(text):
        return _explain_worker(worker.group(1), text)
    if isinstance(error, UserError):
        return _one_line(text)
    if isinstance(error.__cause__, UserError):  # wrapped by a library, e.g. numpy
        return _one_line(str(error.__cause__))
    if isinstance(error, pickle.UnpicklingError) and 'Weights only load failed' in text:
        return _explain_refused_load(error)
    if isinstance(error, UnicodeDecodeError) and (file := _read_by_mmengine(error)):
        return f'{file} is not a text file ({error.reason} at byte {error.start})'
    if isinstance(error, UnicodeEncodeError) and 'surrogates' in error.reason:  # how Python reads other file names
        near = error.object[max(0, error.start - 200):error.end + 200]
        return f'{near!r} is not UTF-8; rename the file or folder'
    if isinstance(error, KeyError) and (missing := _NOT_REGISTERED.match(str(next(iter(error.args), '')))):
        from ..runtime.unregistered import explain_unregistered
        return explain_unregistered(*missing.groups())
    if isinstance(error, urllib.error.URLError):
        return _explain_download(error)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith('mmkcla'):
        return f'the package {error.name.split(".")[0]!r} is not installed; run mmkcla doctor'
    if isinstance(error, _FIXABLE_OS) or isinstance(error, OSError) and error.errno in _FIXABLE_ERRNO:
        return _explain_os(error)
    if isinstance(error, TypeError) and 'unexpected keyword argument' in text and _raised_by_a_config(error):
        return f'config: {_one_line(text)}'
    if isinstance(error, (AssertionError, TypeError, ValueError)) and (part := _part_being_built(error)):
        return f'config: {part}: {_one_line(text) or "invalid (no message; see --traceback)"}'
    if isinstance(error, _OF_VALUES) and not _is_out_of_memory(error) and (part := _part_being_built(error)):
        return f'config: {part}: {type(error).__name__}: {_one_line(text) or "no message; see --traceback"}'
    if isinstance(error, TypeError) and (kind := _unknown_optimizer(error)):
        return f"type='{kind}' is not in the optimizer registry; check its spelling"
    if isinstance(error, TypeError) and (hook := _IN_HOOK.search(text)):
        return f'config: {hook[2]}: {_one_line(hook[1])}'
    if isinstance(error, RuntimeError) and _SHAPES.search(text) and (module := _module_running(error)):
        return (f'config: the parts of the model do not fit each other: {module}: {_one_line(text)[:200]}; check their '
                'numbers of channels')
    if _is_out_of_memory(error):
        return ('the GPU is out of memory: reduce train_dataloader.batch_size or the image size, or train with --amp '
                f'({_one_line(text).split(". ")[0]})')
    if isinstance(error, RuntimeError) and _WORKER_DIED.search(text):
        return ('a data-loader worker was killed, usually because memory or shared memory (/dev/shm) ran out: '
                'reduce num_workers of the dataloaders')
    if (isinstance(error, _FAILURES) or _is_of_opencv(error)) and (place := _failed_in_a_host(error)):
        return (f'{place} failed ({type(error).__name__}: {_one_line(text)[:300]}); a value in the config or the data '
                'does not fit it, and --traceback shows the place')
    return None


def explain_lost_rank(error: BaseException) -> str | None:
    """Return one line for a failed collective operation, None for other errors."""
    distributed = sys.modules.get('torch.distributed')
    if not isinstance(error, RuntimeError) or distributed is None or not distributed.is_initialized():
        return None
    if not isinstance(error, distributed.DistError) and not _COLLECTIVE.search(str(error)):
        return None
    reason = _one_line(str(error)).split('. This ')[0][:200]
    return f'{lost_rank() or "the connection to another rank was lost"} ({reason}); resume with --resume'


def _explain_worker(kind: str, text: str) -> str | None:
    """Extract the error message from the worker traceback that torch puts into the exception."""
    last = text.rstrip().splitlines()[-1]
    match = _LAST_LINE.match(last)
    message = match.group(2) if match else last
    if kind == UserError.__name__:
        return message
    if kind in {known.__name__ for known in _FIXABLE_OS}:
        return re.sub(r'^\[Errno \d+\] ', '', message)
    return None


def _explain_download(error: urllib.error.URLError) -> str:
    reason = getattr(error, 'reason', error)
    data = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_name == 'download_and_extract_archive']  # small data sets of mmpretrain
    if data:
        url, folder = data[0].get('url'), data[0].get('download_root')
        return f'cannot download the data set {url}: {reason}; without network access, put the file into {folder}'
    url = getattr(error, 'url', None) or 'a file given by URL in the config'
    return (f'cannot download {url}: {reason}; without network access, use a local file, or train without pretrained '
            'weights: --cfg-options model.backbone.init_cfg=None')


def _read_by_mmengine(error: BaseException) -> str | None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get('__name__')).startswith('mmengine.fileio'):
            file = frame.f_locals.get('file', frame.f_locals.get('filename', frame.f_locals.get('filepath')))
            return str(file) if isinstance(file, (str, os.PathLike)) else None
    return None


def _explain_refused_load(error: BaseException) -> str:
    """Name the file that a module read with ``torch.load``, which refuses code."""
    files = [frame.f_locals.get('f') for frame, _ in traceback.walk_tb(error.__traceback__)
             if frame.f_globals.get('__name__') == 'torch.serialization' and frame.f_code.co_name == 'load']
    file = getattr(files[0], 'name', files[0]) if files else 'a file'
    return f'{file} contains more than weights; it is refused, since loading it could run code'


def _explain_os(error: OSError) -> str:
    remedy = ('; free some space and run the command again (a training with --resume)' if error.errno in _FULL else '')
    name = error.filename if error.filename is not None else _being_written(error)
    if name is None:
        return _one_line(str(error)) + remedy
    return f'{(error.strerror or type(error).__name__).lower()}: {name}{remedy}'


def _being_written(error: BaseException) -> str | None:
    """Name of the open file in the innermost frame that has one; ``write`` raises errors without the name."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for value in frame.f_locals.values():
            name = getattr(value, 'name', None)
            if hasattr(value, 'write') and isinstance(name, str) and not name.startswith('<'):
                return name
    return None


def _raised_by_a_config(error: BaseException) -> bool:
    """Whether mmengine's builder was active: the keyword came from a config, possibly through super().__init__."""
    return any(frame.name == 'build_from_cfg' for frame in traceback.extract_tb(error.__traceback__)[-4:])


def _part_being_built(error: BaseException) -> str:
    """Return what mmengine's builder was building, e.g. ``EncoderDecoder.decode_head (FCNHead)``; empty if it was not
    active."""
    parts = [frame.f_locals.get('cfg') for frame, _ in traceback.walk_tb(error.__traceback__)
             if frame.f_code.co_name == 'build_from_cfg']
    parts = [part for part in parts if hasattr(part, 'get')]
    if not parts:
        return ''
    path = [_kind(parts[0])]
    for outer, inner in itertools.pairwise(parts):
        keys = [key for key, value in outer.items() if hasattr(value, 'get') and _kind(value) == _kind(inner)]
        path.append(str(keys[0]) if keys else _kind(inner))
    return path[0] if len(path) == 1 else f'{".".join(path)} ({_kind(parts[-1])})'


def _unknown_optimizer(error: BaseException) -> str:
    """Name of an optimizer whose class mmengine did not find; it inspects None then."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if (frame.f_globals.get('__name__') == 'mmengine.optim.optimizer.default_constructor'
                and frame.f_locals.get('optimizer_cls', '') is None):
            return str(frame.f_locals['self'].optimizer_cfg.get('type'))
    return ''


def _is_of_opencv(error: BaseException) -> bool:
    return type(error).__module__.partition('.')[0] == 'cv2'


def _failed_in_a_host(error: BaseException) -> str:
    """Class and function of a host that raised the error; empty if it is from this package, or from mmengine itself."""
    last = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get('__name__')).split('.')[0]
        if package in (*_HOSTS, 'mmkcla'):
            last = frame, package
    if last is None or last[1] == 'mmkcla':
        return ''
    owner = last[0].f_locals.get('self')
    return f'{f"{type(owner).__name__}." if owner is not None else ""}{last[0].f_code.co_name} of {last[1]}'


def _module_running(error: BaseException) -> str:
    """Names of the outermost and the innermost module of a model whose forward was running; empty if none was."""
    torch = sys.modules.get('torch')
    frames = [frame.f_locals.get('self') for frame, _ in traceback.walk_tb(error.__traceback__)
              if frame.f_code.co_name == 'forward']
    names = [type(module).__name__ for module in frames if torch is not None and isinstance(module, torch.nn.Module)]
    return ' in '.join(dict.fromkeys((names[-1], names[0]))) if names else ''


def _kind(part: Any) -> str:
    kind = part.get('type')
    return str(getattr(kind, '__name__', kind))


def _is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get('torch')
    return torch is not None and isinstance(error, torch.cuda.OutOfMemoryError)


def _leave_process_group() -> None:
    """Close the process group; torch warns at exit about an open one."""
    distributed = sys.modules.get('torch.distributed')
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _one_line(text: str) -> str:
    return ' '.join(text.split())
