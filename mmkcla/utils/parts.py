"""Temporary files of atomic writes, and what is left of them after a crash."""
from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART_SUFFIX = '.part'
_MARK = 'mmkcla-'
_NAME = re.compile(rf'\..+\.{_MARK}\w{{8}}\{PART_SUFFIX}')
_FOLDER = re.compile(rf'\..+\.{_MARK}\w{{8}}')
_NEW = 60  # seconds in which a file may not be locked yet
_LOCKS = fcntl is not None
_scanned: set[tuple[int, str]] = set()  # process and folder


def part_prefix(name: str) -> str:
    """Return the start of the name of the temporary file for a target."""
    return f'.{name[:40]}.{_MARK}'


def lock_part(handle: int) -> None:
    """Mark an open temporary file as being written, until it is closed or the process dies."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Mark a temporary folder as being written while the block runs."""
    handle = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        if handle is not None:
            lock_part(handle)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def remove_folders(parent: Path) -> list[Path]:
    """Delete the temporary folders of processes that have died, as :func:`remove_parts` does."""
    try:
        found = [path for path in parent.iterdir() if _FOLDER.fullmatch(path.name)]
    except OSError:
        return []
    return [path for path in found if _remove(path, folder=True)]


def remove_parts_once(folder: Path) -> None:
    """Call :func:`remove_parts` for the first write of this process to a folder."""
    key = (os.getpid(), str(folder))
    if key not in _scanned:
        _scanned.add(key)
        remove_parts(folder)


def remove_parts(folder: Path, recursive: bool = False) -> list[Path]:
    """Delete the temporary files of processes that have died.

    Files of living processes are locked, and stay; so do files of other programs, links, files of the last minute, and
    all files where locks are not supported.

    Args:
        folder: a folder; nothing is done if it cannot be read.
        recursive: its subfolders as well. Links are not followed.

    Returns:
        The deleted files.
    """
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        found += [Path(place, name) for name in names if _NAME.fullmatch(name)]
        if not recursive:
            folders.clear()
    return [path for path in found if _remove(path)]


def _remove(path: Path, folder: bool = False) -> bool:
    if not _LOCKS:
        return False
    try:
        handle = os.open(path, os.O_NOFOLLOW | (os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_NONBLOCK))
    except OSError:
        return False
    try:
        if time.time() - os.fstat(handle).st_mtime < _NEW:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder:
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    except OSError:  # locked, or not ours to delete
        return False
    finally:
        os.close(handle)
