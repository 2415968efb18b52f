"""Write a large folder atomically, and resume an interrupted run.

The work is done in ``<out>.partial`` next to the target: ``data/``, which is renamed to the target at the end, and
``journal.jsonl``: a header that describes the output, then one line per finished piece.
"""
from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from mmkcla.errors import UserError
from mmkcla.utils.files import exclusive, parse_json, publish_folder

JOURNAL, LOCK = 'journal.jsonl', 'lock'


class Workspace:
    """Context manager for a folder being written; without :meth:`publish` the work is kept for the next run, unless
    it is refused (:meth:`discarded_if_refused`).

    Args:
        out: the target.
        header: JSON-compatible; work with another header is discarded.

    Attributes:
        data: the folder to fill.
        done: the recorded pieces of an earlier run, by their ``name``.
        restarted: whether work with another header was discarded.

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
        self._published = self._discarded = False

    def __enter__(self) -> Workspace:
        self._folder.mkdir(parents=True, exist_ok=True)
        if foreign := sorted(set(os.listdir(self._folder)) - {'data', JOURNAL, LOCK}):
            raise UserError(f'{self._folder / foreign[0]} is not of a converter; move it, or choose another folder')
        with ExitStack() as stack:
            stack.enter_context(exclusive(self._folder / LOCK, lambda: UserError(
                f'another run is writing {self._target}; wait until it is done')))
            self._journal = stack.enter_context(open(self._folder / JOURNAL, 'a+b'))
            self._begin()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        if self._discarded:
            shutil.rmtree(self.data)
        self._open.close()
        if self._published or self._discarded:
            remove_partial(self._target)

    def record(self, entry: dict) -> None:
        """Record a finished piece, named by ``entry['name']``, after its files are written. Thread-safe."""
        line = json.dumps(entry).encode() + b'\n'
        with self._lock:
            self._journal.write(line)
            self._journal.flush()

    def publish(self, replace: bool = False) -> None:
        """Move ``data`` to the target.

        Args:
            replace: as of :func:`~mmkcla.utils.files.publish_folder`.

        Raises:
            OSError: it cannot be moved; or the target is not empty and ``replace`` is False.
        """
        publish_folder(self.data, self._target, replace)
        self._published = True

    @contextmanager
    def discarded_if_refused(self) -> Iterator[None]:
        """Delete the work if the block raises a UserError.

        The same files with the same arguments would be refused again, and others start again: it is of no use to them.
        """
        try:
            yield
        except UserError:
            self._discarded = True
            raise

    def _begin(self) -> None:
        """Resume the work of an earlier run, or start again."""
        self._journal.seek(0)
        content = self._journal.read()
        lines = content[:content.rfind(b'\n') + 1].splitlines()  # the last one may be half written
        entries = [entry for entry in map(_parse, lines) if entry is not None]
        if not entries and self.data.exists():
            raise UserError(f'{self._folder} has no readable journal; delete it to start again')
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
    """Remove only the leftovers of a run that was killed after it had published its folder."""
    folder = partial_folder(out)
    with suppress(OSError):
        if set(os.listdir(folder)) <= {JOURNAL, LOCK}:
            for name in (JOURNAL, LOCK):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
