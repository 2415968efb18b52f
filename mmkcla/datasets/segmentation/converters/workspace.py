"""Write a large folder whole or not at all, and go on where a killed run stopped.

The work is done in ``<out>.partial`` beside the target: ``data/``, which becomes the target by a rename, and
``journal.jsonl``: a header that tells what is being made, then a line for each finished piece.
"""
from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmkcla.errors import UserError

try:
    import fcntl
except ImportError:  # Windows: two runs at once are not noticed there
    fcntl = None


class Workspace:
    """A folder in the making. A context manager; leaving it without :meth:`publish` keeps the work for the next run.

    Args:
        out: the target.
        header: JSON-like; work of another header is thrown away.

    Attributes:
        data: the folder to fill.
        done: the recorded pieces of an earlier run, by their ``name``.
        restarted: whether work of another header was thrown away.

    Raises:
        UserError: ``<out>.partial`` is something else, or another run is at work there.
    """

    def __init__(self, out: str | os.PathLike, header: dict) -> None:
        self._target = Path(os.path.realpath(out))
        self._folder = partial_folder(out)
        self._header = json.loads(json.dumps(header))
        self._lock = threading.Lock()
        self.data = self._folder / 'data'
        self.done: dict[str, dict] = {}
        self.restarted = False

    def __enter__(self) -> Workspace:
        self._folder.mkdir(parents=True, exist_ok=True)
        if foreign := sorted(set(os.listdir(self._folder)) - {'data', 'journal.jsonl'}):
            raise UserError(f'{self._folder / foreign[0]} is not of a converter; move it, or choose another folder')
        self._journal = open(self._folder / 'journal.jsonl', 'a+b')
        try:
            self._begin()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.close()

    def record(self, entry: dict) -> None:
        """Note a finished piece; ``entry['name']`` tells which. From any thread, after its files are written."""
        line = json.dumps(entry).encode() + b'\n'
        with self._lock:
            self._journal.write(line)
            self._journal.flush()

    def publish(self, replace: bool = False) -> None:
        """Move ``data`` to the target.

        Args:
            replace: put aside a folder that is there, and delete it once the new one is in its place.

        Raises:
            OSError: it cannot be moved; or the target is not empty and ``replace`` is False.
        """
        old = self._target.with_name(f'.{self._target.name}.mmkcla-old')
        if replace and self._target.exists():
            shutil.rmtree(old, ignore_errors=True)
            self._target.rename(old)
        elif self._target.exists():
            self._target.rmdir()  # refuses a folder that is not empty
        try:
            self.data.rename(self._target)
        except OSError:
            if old.exists():
                old.rename(self._target)
            raise
        shutil.rmtree(old, ignore_errors=True)
        remove_partial(self._target)

    def _begin(self) -> None:
        """Take up the earlier run's work, or start anew."""
        if fcntl is not None:
            try:
                fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f'another run is writing {self._target}; wait until it is done') from None
        self._journal.seek(0)
        content = self._journal.read()
        lines = content[:content.rfind(b'\n') + 1].splitlines()  # the last one may be half written
        entries = [entry for entry in map(_parse, lines) if entry is not None]
        if not entries and self.data.exists():
            raise UserError(f'{self._folder} has no readable journal; delete it to start anew')
        if entries and entries[0] == self._header:
            self._journal.truncate(content.rfind(b'\n') + 1)
            self.done = {entry['name']: entry for entry in entries[1:] if isinstance(entry.get('name'), str)}
        else:
            self.restarted = self.data.exists()
            if self.restarted:
                shutil.rmtree(self.data)
            self._journal.truncate(0)
            self.record(self._header)
        self.data.mkdir(exist_ok=True)


def partial_folder(out: str | os.PathLike) -> Path:
    """Where the unfinished work for ``out`` is; a link at ``out`` is followed."""
    target = Path(os.path.realpath(out))
    return target.with_name(f'{target.name}.partial')


def remove_partial(out: str | os.PathLike) -> None:
    """Remove what a run killed after its last step left beside a finished folder (and nothing but that)."""
    folder = partial_folder(out)
    with suppress(OSError):
        if set(os.listdir(folder)) <= {'journal.jsonl'}:
            (folder / 'journal.jsonl').unlink(missing_ok=True)
            folder.rmdir()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
