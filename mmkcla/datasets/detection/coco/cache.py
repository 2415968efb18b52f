"""Keep the arrays of large COCO files, so that the second check of a file takes a second.

The cache is the folder ``.mmkcla_cache`` beside the annotation file or, where that cannot be written, the user's cache
folder (``~/.cache/mmkcla`` on Linux). An entry belongs to one content (SHA-256) and one version of mmkcla. A second
small file maps path, size and modification time to the SHA-256, so that an unchanged file is not hashed again. The
sizes of image files are not kept; they are compared at each check.
"""
from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ....utils.files import sha256_of, whole_file
from ....version import __version__
from ...report import Fault
from .table import Table, read_table

FOLDER = '.mmkcla_cache'
LARGE = 2 ** 22  # bytes; smaller files are read in a fraction of a second
_FORMAT = 3  # of the entries; count up when Table or a fault of its types changes


def cached_table(path: Path, large: int = LARGE) -> Table:
    """The table of a file, from the cache if it is large.

    Raises:
        UserError: the file is not JSON, or not in COCO format.
    """
    if path.stat().st_size < large:
        return read_table(path)
    state = path.stat()
    quick = _digest(f'{os.path.realpath(path)}\n{state.st_size}\n{state.st_mtime_ns}')
    folders = [path.parent / FOLDER, _user_folder()]
    keys = [text for folder in folders if (text := _read(folder / f'{quick}.key'))]
    content = keys[0].decode(errors='replace') if keys else sha256_of(path)
    entry = f'{_digest(f"{content} {_FORMAT} {__version__}")}.table'
    for folder in folders:
        with contextlib.suppress(Exception):  # a damaged entry: the file is read again
            if packed := _read(folder / entry):
                return unpack(packed)
    table = read_table(path)
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) == (state.st_size, state.st_mtime_ns):  # unchanged while it was read
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # ids that MessagePack has no type for
            _keep(folders, {entry: pack(table), f'{quick}.key': content.encode()})
    return table


def _keep(folders: list[Path], files: dict[str, bytes]) -> None:
    """Write the files to the first folder that can be written."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for name, data in files.items():
                with whole_file(folder / name) as file:
                    file.write(data)
            return


def pack(table: Table) -> bytes:
    """A table as MessagePack, which holds plain values only."""
    content: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if isinstance(value, np.ndarray):
            value = {'dtype': value.dtype.str, 'shape': value.shape, 'data': value.tobytes()}
        elif field.name.endswith('_refs'):
            value = list(value.items())
        elif field.name in ('ids', 'image_ids', 'category_ids'):
            value = [None if one is msgspec.UNSET else one for one in value]  # neither is an id
        content[field.name] = value
    return msgspec.msgpack.encode(content)


def unpack(packed: bytes) -> Table:
    """The inverse of :func:`pack`."""
    content = msgspec.msgpack.decode(packed)
    for name, value in content.items():
        if isinstance(value, dict):
            content[name] = np.frombuffer(value['data'], value['dtype']).reshape(value['shape']).copy()
        elif name.endswith('_refs'):
            content[name] = dict(map(tuple, value))
    content['faults'] = [Fault(**fault) for fault in content['faults']]
    return Table(**content)


def _user_folder() -> Path:
    from platformdirs import user_cache_dir
    return Path(user_cache_dir('mmkcla', appauthor=False)) / 'coco'


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b''
