"""Files and folders: atomic writing, JSON, hashes, locks, and checks of generated folders."""
from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import UserError
from .parts import PART_SUFFIX, lock_part, locked_folder, part_prefix, remove_folders, remove_parts_once
from .ranks import rank

_OLD_SUFFIX = '.mmkcla-old'  # of a folder while it is being replaced


@contextmanager
def whole_file(target: str | os.PathLike, mode: str = 'wb') -> Iterator[Any]:
    """Write a file atomically: yield an open file that replaces ``target`` when the block ends without an error.

    The data is written to a temporary file in the same folder, flushed to disk and renamed. Readers see the old file
    or the new one, never a partial file, even after a crash. If the block raises, the temporary file is deleted.
    Missing parent folders are created. A symbolic link at ``target`` is followed. What crashes have left in the folder
    is deleted (:mod:`mmkcla.utils.parts`).

    Args:
        target: the file to write.
        mode: ``'wb'``, or ``'w'`` for UTF-8 text without newline translation.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_parts_once(target.parent)
    handle, part = tempfile.mkstemp(prefix=part_prefix(target.name), suffix=PART_SUFFIX, dir=target.parent)
    encoding, newline = (None, None) if 'b' in mode else ('utf-8', '')
    try:
        with open(handle, mode, encoding=encoding, newline=newline) as file:
            lock_part(handle)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, _file_mode(target))
        os.replace(part, target)
        _sync_folder(target.parent)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError) and error.filename in (None, part):  # a full disk: name the file
            error.filename, error.filename2 = str(target), None
        raise


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, so that a rename survives a power cut."""
    with suppress(OSError):  # not all systems can open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _file_mode(target: Path) -> int:
    """Mode of the existing file, or the default mode of new files (mkstemp uses 0600)."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write_json(target: str | os.PathLike, value: Any) -> None:
    """Write ``value`` as JSON, atomically. NumPy and torch numbers become plain numbers; NaN and infinity become null.
    """
    with whole_file(target, 'w') as file:
        json.dump(_plain(value), file, indent=1, allow_nan=False)
        file.write('\n')


def parse_json(content: str | bytes, **options: Any) -> Any:
    """``json.loads`` for files of unknown origin.

    Raises:
        ValueError: the content is not JSON, or nested too deeply.
    """
    try:
        return json.loads(content, **options)
    except RecursionError:
        raise ValueError('it is nested too deeply') from None


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
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def whole_folder(target: str | os.PathLike, replace: bool = False) -> Iterator[Path]:
    """Write a folder atomically: yield an empty folder that is renamed to ``target`` when the block ends.

    The temporary folder is hidden and lies next to ``target`` on the same file system. It is deleted if the block
    raises. Missing parent folders are created. A symbolic link at ``target`` is followed.

    Args:
        target: the folder to write; missing or empty, unless ``replace``.
        replace: see :func:`publish_folder`.

    Raises:
        OSError: if the folder cannot be written, or ``target`` is not empty and ``replace`` is False.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_folders(target.parent)
    work = Path(tempfile.mkdtemp(prefix=part_prefix(target.name), dir=target.parent))
    new = work / 'new'
    try:
        with locked_folder(work):
            new.mkdir()  # not `work` itself, which has mkdtemp's mode 0700
            yield new
            publish_folder(new, target, replace)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def publish_folder(new: Path, target: Path, replace: bool = False) -> None:
    """Rename ``new`` to ``target``.

    Args:
        new: a complete folder on the same file system.
        target: missing or empty, unless ``replace``.
        replace: move an existing folder aside, and delete it after the rename.

    Raises:
        OSError: if it cannot be renamed, or ``target`` is not empty and ``replace`` is False.
    """
    old = target.with_name(f'.{target.name}{_OLD_SUFFIX}')
    if replace and target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    elif target.exists():
        target.rmdir()  # fails if the folder is not empty, even if it was filled in the meantime
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def already_there(folder: Path, what: str, read: Callable[[Path], tuple[Mapping[str, Any], Mapping[str, int | None]]],
                  parameters: Mapping[str, Any], overwrite: bool, ignored: Collection[str] = ()) -> bool:
    """Return whether ``folder`` already contains the output for ``parameters``; False if it can be written.

    Args:
        folder: the folder to check.
        what: name of the output in messages, for example ``'coins data set'``.
        read: reads the record in the folder: the parameters it was written with, and its files by relative name, with
            their sizes in bytes if known. A ``LookupError``, ``TypeError``, ``ValueError``, ``AttributeError`` or
            ``FileNotFoundError`` means that the folder contains something else.
        parameters: the requested parameters. A callable (a digest of the source files) is only called if all other
            parameters match.
        overwrite: whether the folder may be replaced.
        ignored: names of other files allowed in the folder.

    Raises:
        UserError: if the folder contains files that must not be lost, or is damaged.
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
    differences = ', '.join(f'{key} {_short(written.get(key))} (requested: {_short(value)})'
                            for key, value in parameters.items() if not callable(value) and written.get(key) != value)
    if not differences:
        differences = ', '.join(f'other files in the {key}' for key, value in parameters.items()
                                if callable(value) and written.get(key) != value())
    if differences:
        raise UserError(f'{folder} was written with {differences}; choose another folder, or use --overwrite')
    for name, size in expected.items():
        if name not in present:
            raise UserError(f'{folder} is damaged: {name} is missing; write it again with --overwrite')
        if size is not None and present[name] != size:
            raise UserError(f'{folder} is damaged: {name} has {present[name]} bytes instead of {size}; write it again '
                            'with --overwrite')
    return True


def _short(value: Any) -> str:
    """Format a parameter for messages; digests are shortened."""
    if isinstance(value, Mapping):
        return ' '.join(f'{key}={_short(item)}' for key, item in value.items())
    return value[:8] if isinstance(value, str) and len(value) == 64 else str(value)


_WORKERS_END = 1.0  # seconds; workers of a killed training may hold its lock until they end


@contextmanager
def training_lock(work_dir: str | os.PathLike) -> Iterator[None]:
    """Lock ``work_dir`` for this training while the block runs. The lock is released if the process dies.

    Does nothing on ranks other than 0, and on file systems without locks.

    Raises:
        UserError: if another process holds the lock.
    """
    if rank() != 0:
        yield
        return
    work_dir = Path(work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    owner = work_dir / '.training'
    with exclusive(work_dir / '.training.lock', lambda: UserError(
            f'process {_owner(owner)} is training in {work_dir}; wait until it ends, stop it, or choose another '
            '--work-dir'), wait=_WORKERS_END):
        if owner.is_symlink():  # never write through a link
            owner.unlink()
        with open(os.open(owner, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, 'O_NOFOLLOW', 0), 0o644), 'w',
                  encoding='utf-8') as file:
            file.write(f'{os.getpid()}\n')
        yield


@contextmanager
def exclusive(lock: Path, busy: Callable[[], Exception], wait: float = 0) -> Iterator[None]:
    """Hold a lock file while the block runs. Raises ``busy()`` if another process holds it for ``wait`` seconds. A
    symbolic link in its place is replaced by a file."""
    if lock.is_symlink():  # opening it would empty the file behind it
        lock.unlink()
    held = FileLock(lock, timeout=wait)
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


def short_names(paths: Sequence[str]) -> list[str]:
    """Paths relative to their common folder."""
    folders = {os.path.dirname(path) for path in paths}
    if len(folders) == 1:
        return [os.path.basename(path) for path in paths]
    try:
        shared = os.path.commonpath(list(folders))
    except ValueError:  # mixed relative and absolute paths, or several drives
        return list(paths)
    return [os.path.relpath(path, shared) if shared else path for path in paths]
