"""The contents of a COCO file as arrays, and the faults in the types of its values."""
from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from ....utils.text import is_printable, one_line
from ...findings import PLACES
from ...report import REFUSED, REPAIRED, Fault
from .masks import Masks
from .reader import Content, read_content
from .repairs import NO_CROWD, decimal_faults


@dataclass
class Table:
    """One COCO file: M images, N annotations, K categories.

    Attributes:
        names, image_ids: of the images; a file name that is not text is ''.
        sizes: ``(M, 2)`` width and height; NaN where it is not a number.
        category_ids, classes: of the categories, in the order of the file.
        annotated: whether the file has the list ``annotations``.
        ids: of the annotations.
        image, category: ``(N,)`` index into the lists above; -1: unknown.
        image_refs, category_refs: the values behind the -1, by index.
        box: ``(N, 4)`` x, y, width, height; NaN where they are not four numbers.
        area: ``(N,)``; NaN where it is not a number.
        crowd, ignored: ``(N,)`` bool.
        segmentation, extent, mask_area: ``(N,)``, ``(N, 4)`` and ``(N,)``, see :class:`.masks.Masks`.
        faults: wrong types.
    """

    names: list[str]
    image_ids: list[Any]
    sizes: np.ndarray
    category_ids: list[Any]
    classes: list[str]
    annotated: bool
    ids: list[Any]
    image: np.ndarray
    category: np.ndarray
    image_refs: dict[int, Any]
    category_refs: dict[int, Any]
    box: np.ndarray
    area: np.ndarray
    crowd: np.ndarray
    ignored: np.ndarray
    segmentation: np.ndarray
    extent: np.ndarray
    mask_area: np.ndarray
    faults: list[Fault] = field(default_factory=list)

    def place(self, number: int) -> str:
        """Where an annotation is: ``id 7 in a.jpg``; ``annotation 3 of the list``, from 1, if it has no id."""
        image, identity = int(self.image[number]), self.ids[number]
        name = f'id {identity}' if is_id(identity) else f'annotation {number + 1} of the list'
        return name + (f' in {self.names[image]}' if image >= 0 else '')

    def fault(self, kind: str, severity: str, where: np.ndarray, remedy: str = '',
              detail: Callable[[int], str] | None = None) -> list[Fault]:
        """A fault of the annotations at ``where`` (bool or indices), as a list; empty if there are none."""
        found = np.flatnonzero(where) if where.dtype == bool else where
        if not len(found):
            return []
        places = [self.place(int(i)) + (f': {detail(int(i))}' if detail else '') for i in found[:PLACES]]
        return [Fault(kind, severity, len(found), places, remedy)]


def read_table(path: Path) -> Table:
    """Read a file.

    Raises:
        UserError: it is not JSON, or not in COCO format.
    """
    return build_table(read_content(path))


def build_table(content: Content) -> Table:
    """The arrays of a parsed file; wrong values are listed in ``faults``."""
    annotations = [] if content.annotations is UNSET else content.annotations
    images, categories = content.images, content.categories
    image_ids, category_ids = [one.id for one in images], [one.id for one in categories]
    ids = [one.id for one in annotations]
    image, image_refs = _references([one.image_id for one in annotations], image_ids)
    category, category_refs = _references([one.category_id for one in annotations], category_ids)
    flags = [one.iscrowd for one in annotations]
    crowd = numbers([int(flag) if type(flag) is bool else 0 if flag is UNSET else flag for flag in flags])
    sizes = np.stack([numbers([one.width for one in images]), numbers([one.height for one in images])], 1)
    masks = Masks([one.segmentation for one in annotations], image, sizes)
    table = Table(
        [one.file_name if isinstance(one.file_name, str) else '' for one in images], image_ids,
        sizes, category_ids, [one.name if isinstance(one.name, str) else '' for one in categories],
        content.annotations is not UNSET, ids, image, category, image_refs, category_refs,
        boxes([one.bbox for one in annotations]), numbers([one.area for one in annotations]),
        np.nan_to_num(crowd) != 0, np.array([bool(one.ignore) for one in annotations], bool),
        masks.kinds, masks.extents, masks.areas)
    table.faults = [*_image_faults(table, content), *_category_faults(content),
                    *_annotation_faults(table, annotations, crowd)]
    for part, entries in (('images', images), ('annotations', annotations), ('categories', categories)):
        table.faults += decimal_faults(part, entries)
    table.faults += table.fault(NO_CROWD, REPAIRED, np.array([flag is UNSET for flag in flags], bool), 'read as 0')
    return table


def numbers(values: Sequence[Any]) -> np.ndarray:
    """The values as float64; NaN for what is not a finite number (text, null, true, a missing key)."""
    if not set(map(type, values)) <= {int, float}:
        values = [value if type(value) in (int, float) else math.nan for value in values]
    try:
        found = np.array(values, np.float64)
    except OverflowError:  # an integer beyond 1e308
        found = np.array([value if abs(value) < 1e308 else math.nan for value in values], np.float64)
    found[~np.isfinite(found)] = np.nan
    return found


def boxes(values: Sequence[Any]) -> np.ndarray:
    """The boxes ``(N, 4)``; NaN for what is not a list of four numbers."""
    if set(map(type, values)) <= {list} and set(map(len, values)) <= {4}:
        found = numbers(list(chain.from_iterable(values))).reshape(-1, 4)
    else:
        fours = [value if type(value) is list and len(value) == 4 else [math.nan] * 4 for value in values]
        found = numbers(list(chain.from_iterable(fours))).reshape(-1, 4)
    found[np.isnan(found).any(1)] = np.nan
    return found


def _references(values: Sequence[Any], known: Sequence[Any]) -> tuple[np.ndarray, dict[int, Any]]:
    """Indices into ``known`` (-1: not in it), and the values that are not."""
    index = {value: number for number, value in enumerate(known) if is_id(value)}
    if set(map(type, values)) <= {int, str}:
        found = [index.get(value, -1) for value in values]
    else:
        found = [index.get(value, -1) if is_id(value) else -1 for value in values]
    result = np.array(found, np.int32)
    return result, {int(i): values[i] for i in np.flatnonzero(result < 0) if is_id(values[i])}


def is_id(value: Any) -> bool:
    """Whether a value can be an id: a finite number or text."""
    return type(value) in (int, str) or type(value) is float and math.isfinite(value)


def shown(value: Any) -> str:
    """A JSON value for messages."""
    return 'missing' if value is UNSET else one_line(json.dumps(value, default=str), 40)


def _image_faults(table: Table, content: Content) -> list[Fault]:
    def fault(kind: str, wrong: Iterable[int], value: Callable[[int], Any], remedy: str = '') -> list[Fault]:
        wrong = list(wrong)
        places = [f'{table.names[i] or f"entry {i}"}: {shown(value(i))}' for i in wrong[:PLACES]]
        return [Fault(kind, REFUSED, len(wrong), places, remedy)] if wrong else []

    images = content.images
    faults = fault("entries of 'images' with a file_name that is not text",
                   (i for i, name in enumerate(table.names) if not name), lambda i: images[i].file_name)
    faults += fault("entries of 'images' with an id that is not a number or text",
                    (i for i, one in enumerate(images) if not is_id(one.id)), lambda i: images[i].id)
    for column, key in enumerate(('width', 'height')):
        wrong = np.flatnonzero(~(table.sizes[:, column] > 0))
        faults += fault(f"entries of 'images' with a {key} that is not a number of pixels", wrong.tolist(),
                        lambda i, key=key: getattr(images[i], key))
    twice = repeated(value for value in table.image_ids if is_id(value))
    if twice:
        places = [f'{shown(value)}: ' + ', '.join([table.names[i] for i, one in enumerate(table.image_ids)
                                                   if one == value][:3]) for value in twice[:PLACES]]
        faults.append(Fault('image ids that are used more than once', REFUSED, len(twice), places,
                            'only the last image of an id would be read; number the images'))
    return faults


def _category_faults(content: Content) -> list[Fault]:
    faults, categories = [], content.categories
    for kind, key, good in (('a name that is not text', 'name', lambda value: isinstance(value, str) and value),
                            ('a name that is blank or has control characters', 'name',
                             lambda value: not isinstance(value, str) or not value or is_printable(value)),
                            ('an id that is not a number or text', 'id', is_id)):
        wrong = [(i, value) for i, one in enumerate(categories) if not good(value := getattr(one, key))]
        if wrong:
            faults.append(Fault(f"entries of 'categories' with {kind}", REFUSED, len(wrong),
                                [f'entry {i}: {shown(value)}' for i, value in wrong[:PLACES]]))
    twice = repeated(one.id for one in categories if is_id(one.id))
    if twice:
        places = [f'{shown(value)}: ' + ', '.join(shown(one.name) for one in categories if one.id == value)
                  for value in twice[:PLACES]]
        faults.append(Fault('category ids that are used more than once', REFUSED, len(twice), places,
                            'give each category its own id, and the objects that of their class'))
    return faults


def _annotation_faults(table: Table, annotations: list, crowd: np.ndarray) -> list[Fault]:
    faults = []
    for key in ('id', 'image_id', 'category_id'):
        values = [getattr(one, key) for one in annotations]
        if not set(map(type, values)) <= {int, str}:
            wrong = np.array([i for i, value in enumerate(values) if not is_id(value)], np.int64)
            faults += table.fault(f'annotations with a value of {key} that is not a number or text', REFUSED, wrong,
                                  detail=lambda i, values=values: shown(values[i]))
    for key, wrong, expected in (
            ('bbox', np.isnan(table.box[:, 0]), 'a list of four finite numbers [x, y, width, height]'),
            ('area', np.isnan(table.area), 'a finite number'),
            ('iscrowd', ~np.isin(crowd, (0, 1)), '0 or 1')):
        faults += table.fault(f'annotations with a value of {key} that is not {expected}', REFUSED, wrong,
                              detail=lambda i, key=key: shown(getattr(annotations[i], key)))
    return faults


def repeated(values: Iterable[Any]) -> list[Any]:
    """The values that occur more than once, in the order of their first occurrence."""
    return [value for value, count in Counter(values).items() if count > 1]
