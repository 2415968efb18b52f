"""Parse a COCO annotation file of any size; only the keys that are used are kept."""
from __future__ import annotations

import gc
import json
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from ....errors import UserError
from ....utils.text import one_line
from .keys import refuse_repeats, repeated_key, repeated_top_keys

LISTS = ('images', 'categories', 'annotations')


class Image(Struct, gc=False):
    """An entry of ``images``. Missing keys are ``UNSET``, here and below; values have any JSON type."""

    id: Any = UNSET
    file_name: Any = UNSET
    width: Any = UNSET
    height: Any = UNSET


class Category(Struct, gc=False):
    """An entry of ``categories``."""

    id: Any = UNSET
    name: Any = UNSET


class Annotation(Struct, gc=False):
    """An entry of ``annotations``. ``segmentation`` is decoded when needed, since polygons are most of the file."""

    id: Any = UNSET
    image_id: Any = UNSET
    category_id: Any = UNSET
    bbox: Any = UNSET
    area: Any = UNSET
    iscrowd: Any = UNSET
    ignore: Any = False
    segmentation: Raw = Raw(b'null')


class Content(Struct):
    """A COCO file. ``annotations`` is UNSET in files without labels."""

    images: list[Image]
    categories: list[Category]
    annotations: list[Annotation] | msgspec.UnsetType = UNSET


def read_content(path: Path) -> Content:
    """Parse a file.

    Raises:
        UserError: it is not JSON, or not in COCO format.
    """
    with open(path, 'rb') as file:
        if not file.read(4096).strip() and not file.read().strip():
            raise UserError(f'{path} is empty')
        file.seek(0)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = bytes(mapped)
    if data.startswith(b'\xef\xbb\xbf'):
        raise UserError(f'{path} starts with a byte order mark, which the hosts cannot read; save it as UTF-8 without '
                        'BOM')
    try:
        with _no_collection():
            content = msgspec.json.decode(data, type=Content)
            if not repeated_top_keys(data):
                if repeat := repeated_key(data):
                    raise UserError(f'{path}: {repeat}, and only the last value would be read; remove one')
                return content
        return _read_slowly(path, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_slowly(path, data)  # NaN, which Python and the hosts accept, or an error to be named


def _read_slowly(path: Path, data: bytes) -> Content:
    """Parse with the standard library, as the hosts do, and name the error.

    Raises:
        UserError: the file is not JSON, or not in COCO format.
    """
    try:
        content = json.loads(data.decode('utf-8'), object_pairs_hook=refuse_repeats)
    except KeyError as error:
        raise UserError(f'{path}: an object has the key {error} twice, and only the last value would be read; remove '
                        'one') from error
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not JSON: it is not text ({error.reason})') from error
    except RecursionError as error:
        raise UserError(f'{path} is not in COCO format: it is nested too deeply') from error
    except json.JSONDecodeError as error:
        raise UserError(f'{path} is not JSON: {error}') from error
    except ValueError as error:  # an integer of more than 4300 digits
        raise UserError(f'{path} has a number that Python and the hosts cannot read: {error}') from error
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in LISTS[:2]) \
            or not isinstance(content.get('annotations', []), list):
        keys = ', '.join(sorted(content)) if isinstance(content, dict) else f'a {type(content).__name__}'
        missing = [key for key in ('images', 'categories', 'annotations')
                   if not isinstance(content, dict) or not isinstance(content.get(key), list)]
        raise UserError(f'{path} is not in COCO format: no list {", ".join(map(repr, missing))}; it has {keys}')
    for key in LISTS:
        for number, entry in enumerate(content.get(key, ())):
            if not isinstance(entry, dict):
                raise UserError(f'{path}: entry {number} of {key!r} is {one_line(json.dumps(entry), 40)}; an object '
                                '{"id": …} is expected')
    annotations = content.get('annotations', UNSET)
    return Content(
        [Image(*(entry.get(key, UNSET) for key in Image.__struct_fields__)) for entry in content['images']],
        [Category(*(entry.get(key, UNSET) for key in Category.__struct_fields__)) for entry in content['categories']],
        annotations if annotations is UNSET else list(map(_annotation, annotations)))


def _annotation(entry: dict) -> Annotation:
    values = {key: entry[key] for key in Annotation.__struct_fields__ if key in entry}
    values['segmentation'] = Raw(json.dumps(values.get('segmentation')).encode())
    return Annotation(**values)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector, which visits millions of new lists again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
