"""Keys that an object of a COCO file has twice: JSON parsers keep the last value without a message."""
from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

KEYS = {'images': ('id', 'file_name', 'width', 'height'), 'categories': ('id', 'name'),
        'annotations': ('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation', 'ignore')}


class _Entries(Struct):
    """The text of each entry, and of the parts of the file with keys of the same names."""

    images: list[Raw] = []
    categories: list[Raw] = []
    annotations: list[Raw] = []
    licenses: Raw = Raw(b'')
    info: Raw = Raw(b'')


def repeated_top_keys(data: bytes) -> bool:
    """Whether the file may have two lists of one name; counting is fast, so that other uses of the name count too."""
    return any(data.count(b'"%s"' % key.encode()) > 1 for key in KEYS)


def repeated_key(data: bytes) -> str:
    """The first entry with a key that it has twice, in words; '' if there is none. The file must be valid JSON."""
    entries = msgspec.json.decode(data, type=_Entries)
    lists = {name: getattr(entries, name) for name in KEYS}
    others = bytes(entries.licenses) + bytes(entries.info)
    for key in dict.fromkeys(key for keys in KEYS.values() for key in keys):
        quoted = b'"%s"' % key.encode()
        expected = others.count(quoted) + sum(len(lists[name]) for name, keys in KEYS.items() if key in keys)
        if key != 'ignore' and data.count(quoted) <= expected or key == 'ignore' and quoted not in data:
            continue
        for name, keys in KEYS.items():
            for number, raw in enumerate(lists[name] if key in keys else ()):
                text = bytes(raw)
                if text.count(quoted) > 1 and key in _twice(json.loads(text, object_pairs_hook=list)):
                    return f'entry {number} of {name!r} has the key {key!r} twice'
    return ''


def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict:
    """An ``object_pairs_hook`` for :func:`json.loads`.

    Raises:
        KeyError: an object has a key of a COCO file twice; its argument is the key.
    """
    for key in _twice(pairs):
        if key in KEYS or any(key in keys for keys in KEYS.values()):
            raise KeyError(key)
    return dict(pairs)


def _twice(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    keys = [key for key, _ in pairs]
    return [key for key in dict.fromkeys(keys) if keys.count(key) > 1] if len(set(keys)) < len(keys) else []
