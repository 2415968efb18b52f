"""Files and folders: atomic writing, JSON, hashes, a lock, and folders that are written once."""
from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import UserError
from .ranks import rank

PART_SUFFIX = '.part'
_BESIDE = '.mmkcla-old'  # ending of a folder's name while its replacement takes its place


@contextmanager
def whole_file(target: str | os.PathLike, mode: str = 'wb') -> Iterator[Any]:
    """Yield an open file that takes the place of ``target`` when the block ends, and vanishes when the block raises.

    It is written beside ``target``, flushed to the disk and renamed, so a reader (or a crash) sees the old file or the
    new one, never a part. Missing parents are made; a link at ``target`` is followed.

    Args:
        target: the file to write.
        mode: ``'wb'``, or ``'w'`` for UTF-8 text with line ends as written.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f'.{target.name}.', suffix=PART_SUFFIX, dir=target.parent)
    encoding, newline = (None, None) if 'b' in mode else ('utf-8', '')
    try:
        with open(handle, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, _file_mode(target))
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _file_mode(target: Path) -> int:
    """The mode of the file that is replaced, or what ``open`` would give a new one (mkstemp's is 0600)."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write_json(target: str | os.PathLike, value: Any) -> None:
    """Write ``value`` as JSON, whole; numbers of numpy or torch become plain ones, NaN and infinities null."""
    with whole_file(target, 'w') as file:
        json.dump(_plain(value), file, indent=1, allow_nan=False)
        file.write('\n')


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, 'tolist'):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)


def sha256_of(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def whole_folder(target: str | os.PathLike, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes ``target`` when the block ends, and is deleted when the block raises.

    The work is done in a hidden folder beside ``target`` (same file system, so the last step is a rename); missing
    parents are made. A link at ``target`` is followed.

    Args:
        target: the folder to write; absent or empty, unless ``replace``.
        replace: as of :func:`publish_folder`.

    Raises:
        OSError: the folder cannot be written, or ``target`` is not empty and ``replace`` is False.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f'.{target.name}.', dir=target.parent))
    new = work / 'new'
    try:
        new.mkdir()  # not `work` itself: mkdtemp's 0700 would stay on the result
        yield new
        publish_folder(new, target, replace)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def publish_folder(new: Path, target: Path, replace: bool = False) -> None:
    """Rename ``new`` to ``target``.

    Args:
        new: a complete folder on the same file system.
        target: absent or empty, unless ``replace``.
        replace: set aside a folder that is there, and delete it once the new one is in its place.

    Raises:
        OSError: it cannot be renamed, or ``target`` is not empty and ``replace`` is False.
    """
    old = target.with_name(f'.{target.name}{_BESIDE}')
    if replace and target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    elif target.exists():
        target.rmdir()  # refuses a folder that is not empty, also one filled meanwhile
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def already_there(folder: Path, what: str, read: Callable[[Path], tuple[Mapping[str, Any], Mapping[str, int | None]]],
                  parameters: Mapping[str, Any], overwrite: bool, ignored: Collection[str] = ()) -> bool:
    """Whether ``folder`` holds what a generator with these ``parameters`` would write; False if it may be written.

    Args:
        folder: to look into.
        what: for messages, as ``'coins data set'``.
        read: reads the folder's record: the parameters it was written with, and its files by their relative names, with
            their sizes in bytes where known. Any ``LookupError``, ``TypeError``, ``ValueError``, ``AttributeError`` or
            ``FileNotFoundError`` means that the folder is something else.
        parameters: those asked for. A callable is called only if all others agree: a digest of the source's files.
        overwrite: whether the folder may be replaced.
        ignored: names of files that may lie in it.

    Raises:
        UserError: the folder holds something that must not be lost without ``overwrite``, or is damaged.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if not folder.is_dir():
        raise UserError(f'{folder} is a file; the {what} needs a folder')
    try:
        written, expected = read(folder)
    except UserError:
        raise
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f'{folder} is neither empty nor a {what}; choose another folder') from None
    present = {path.relative_to(folder).as_posix(): path.lstat().st_size
               for path in folder.rglob('*') if not path.is_dir() and path.name not in ignored}
    if overwrite:
        if foreign := sorted(present.keys() - expected.keys()):
            raise UserError(f'{folder / foreign[0]} is not part of the {what} and would be lost; move it, or choose '
                            'another folder')
        return False
    differences = ', '.join(f'{key} {_short(written.get(key))} (asked: {_short(value)})'
                            for key, value in parameters.items() if not callable(value) and written.get(key) != value)
    if not differences:
        differences = ', '.join(f'other files in the {key}' for key, value in parameters.items()
                                if callable(value) and written.get(key) != value())
    if differences:
        raise UserError(f'{folder} was written with {differences}; choose another folder, or --overwrite')
    for name, size in expected.items():
        if name not in present:
            raise UserError(f'{folder} is damaged: {name} is missing; write it again with --overwrite')
        if size is not None and present[name] != size:
            raise UserError(f'{folder} is damaged: {name} has {present[name]} bytes in place of {size}; write it again '
                            'with --overwrite')
    return True


def _short(value: Any) -> str:
    """A parameter for people: digests cut to what distinguishes them."""
    if isinstance(value, Mapping):
        return ' '.join(f'{key}={_short(item)}' for key, item in value.items())
    return value[:8] if isinstance(value, str) and len(value) == 64 else str(value)


@contextmanager
def training_lock(work_dir: str | os.PathLike) -> Iterator[None]:
    """Hold ``work_dir`` for this training while the block runs; a process that dies releases it.

    Does nothing on ranks but the first, and on file systems without locks.

    Raises:
        UserError: another process holds it.
    """
    if rank() != 0:
        yield
        return
    work_dir = Path(work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    owner = work_dir / '.training'
    with exclusive(work_dir / '.training.lock', lambda: UserError(
            f'process {_owner(owner)} is training in {work_dir}; wait for its end, stop it, or choose another '
            '--work-dir')):
        owner.write_text(f'{os.getpid()}\n', encoding='utf-8')
        yield


@contextmanager
def exclusive(lock: Path, busy: Callable[[], Exception]) -> Iterator[None]:
    """Hold a lock file while the block runs, without waiting; raises ``busy()`` if another process holds it."""
    held = FileLock(lock, timeout=0)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held)
        except Timeout:
            raise busy() from None
        except (NotImplementedError, OSError):  # a file system without locks
            pass
        yield


def _owner(file: Path) -> str:
    try:
        return file.read_text(encoding='utf-8').strip() or '(unknown)'
    except OSError:
        return '(unknown)'
