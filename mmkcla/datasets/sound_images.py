"""Remember the image files that were found sound, so that a later run does not decode them for that again.

The memory is one file of SHA-256 digests in the user's cache folder (``~/.cache/mmkcla`` on Linux). It may be deleted.
"""
from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from ..utils.image_damage import CHECK

_LEAST = 200  # new images from which they are written: fewer are decoded in a second
_BYTES = 32


def sound_digests() -> set[str]:
    """The digests (hexadecimal) of the files that are known to be sound."""
    try:
        data = _file().read_bytes()
    except OSError:
        return set()
    return {data[at:at + _BYTES].hex() for at in range(0, len(data) - _BYTES + 1, _BYTES)}


def remember(digests: Collection[str]) -> None:
    """Add digests to the memory, if they are many; without effect where it cannot be written."""
    if len(digests) < _LEAST:
        return
    with contextlib.suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        with _file().open('ab') as file:  # one write: two processes do not mix their digests
            if file.tell() % _BYTES:  # an interrupted write
                file.truncate(file.tell() // _BYTES * _BYTES)
            file.write(b''.join(map(bytes.fromhex, sorted(digests))))


def _file() -> Path:
    from platformdirs import user_cache_dir
    return Path(user_cache_dir('mmkcla', appauthor=False)) / f'sound_images_{CHECK}'
