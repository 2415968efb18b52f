"""Find what makes a result of a COCO file wrong, and what mmdet leaves out of it without a message."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....utils.text import listed, plain_name, plural
from ...findings import PLACES
from ...report import DROPPED, NOTE, REFUSED, REPAIRED, Fault
from .geometry import geometry_faults, numbers_of
from .masks import ABSENT, ALL_SHORT, NOT_NUMBERS, OTHER_SIZE, REFUSED_KINDS, RUNS, SOME_SHORT, USABLE
from .repairs import NO_CROWD
from .table import Table, repeated, shown

_MOST = 0.9  # share of the objects from which a property is taken as one of the file
_NEARLY_ALL, _LEAST = 0.8, 5  # share of a class that mmdet leaves out, and objects from which it is judged
_MANY_SHORT, _LEAST_SHORT = 0.1, 3  # share of the objects without a polygon that is refused, and their least number
_LARGEST_ID = 2 ** 53 - 1  # that CocoMetric does not renumber
NO_OBJECTS = 'images, none of which has an object of the classes'


@dataclass
class Use:
    """What a file is used for.

    Attributes:
        classes: of the data set; None: all of the file.
        trained: whether a model is trained on it.
        masks: whether the model or the metric needs segmentations; None: unknown, so that those present are checked.
        polygons_only: whether run-length masks are ignored (``poly2mask=False``).
        renumbered: whether the evaluator renumbers annotations; None: it is not evaluated.
        filters: ``filter_cfg`` of the data set; empty where it does not apply.
        indices: ``indices`` of the data set; None: all of its images.
    """

    classes: tuple[str, ...] | None = None
    trained: bool = True
    masks: bool | None = False
    polygons_only: bool = False
    renumbered: bool | None = True
    filters: dict[str, Any] = field(default_factory=dict)
    indices: int | Sequence[int] | None = None


def find_faults(table: Table, use: Use) -> list[Fault]:
    """All faults of a file for a use, without those of the image files."""
    faults = [*_types(table, use), *_ids(table, use), *_names(table, use)]
    faults += [*_image_references(table), *_category_references(table)]
    if not table.names:
        faults.append(Fault("entries of 'images'", REFUSED, 0, [], 'the file lists no images'))
    elif table.annotated and not used(table, use).any():
        faults.append(Fault(NO_OBJECTS, REFUSED if use.trained else NOTE, len(table.names), table.names[:PLACES],
                            'there is nothing to train on' if use.trained else 'AP is undefined (-1 or NaN)'))
    if not len(table.ids):
        return faults
    kept, dropped = _dropped(table, use)
    faults += geometry_faults(table, use.masks)
    faults += dropped
    faults += _crowds(table, use)
    faults += _masks(table, use, kept)
    faults += _twins(table, use)
    return faults + _filtered(table, use, kept)


def _types(table: Table, use: Use) -> list[Fault]:
    """The faults of types. pycocotools fails without iscrowd, so that only our metric, which adds it, repairs it."""
    if use.renumbered is not False:
        return table.faults
    return [Fault(fault.kind, REFUSED, fault.count, fault.places,
                  "the metric would fail; use type='mmkcla.CocoMetric' as evaluator, or write iscrowd 0")
            if fault.kind == NO_CROWD else fault for fault in table.faults]


def used(table: Table, use: Use) -> np.ndarray:
    """``(N,)`` whether an annotation is of an image and of a class of the data set."""
    wanted = _of_classes(table, use)
    return wanted if use.indices is None else wanted & images_of(table, use)[table.image]


def images_of(table: Table, use: Use) -> np.ndarray:
    """``(M,)`` whether an image is in the data set: after ``filter_cfg``, then ``indices``, as in mmengine."""
    small, empty = _removed(table, use)
    kept = np.flatnonzero(~(small | empty))
    if isinstance(use.indices, int):
        kept = kept[:use.indices] if use.indices >= 0 else kept[use.indices:]
    elif use.indices is not None:
        kept = kept[[i for i in use.indices if -len(kept) <= i < len(kept)]]
    inside = np.zeros(len(table.names), bool)
    inside[kept] = True
    return inside


def _of_classes(table: Table, use: Use) -> np.ndarray:
    known = np.array([use.classes is None or name in use.classes for name in table.classes] + [False], bool)
    return known[table.category] & (table.image >= 0)


def host_keeps(table: Table, use: Use) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What ``CocoDataset.parse_data_info`` of mmdet keeps, and what it leaves out for each reason; ``(N,)`` bools."""
    x, y, width, height = table.box.T
    sizes = np.vstack([table.sizes, [[np.nan, np.nan]]])[table.image]
    inside_x = np.minimum(x + width, sizes[:, 0]) - np.maximum(x, 0)
    inside_y = np.minimum(y + height, sizes[:, 1]) - np.maximum(y, 0)
    reasons = {"annotations with 'ignore' set": table.ignored,
               'boxes outside their image': ((inside_x <= 0) | (inside_y <= 0)) & (width > 0) & (height > 0),
               'boxes of less than a pixel': (width < 1) | (height < 1),
               'objects with an area of 0 or less': table.area <= 0}
    left, kept = {}, used(table, use)
    for reason, where in reasons.items():
        left[reason] = where & kept
        kept = kept & ~where
    return kept, left


def _dropped(table: Table, use: Use) -> tuple[np.ndarray, list[Fault]]:
    kept, left = host_keeps(table, use)
    faults: list[Fault] = []
    for reason, where in left.items():
        detail = (lambda i: f'bbox {numbers_of(table.box[i])}') if 'box' in reason else None
        faults += table.fault(reason, DROPPED, where, 'mmdet does not train on them; the metric counts them', detail)
    before = used(table, use)
    for number, name in enumerate(table.classes):
        objects = before & (table.category == number)
        lost = objects & ~kept
        nearly = (lost & ~table.ignored).sum() >= _NEARLY_ALL * objects.sum() and objects.sum() >= _LEAST
        if lost.any() and (nearly or not (objects & kept).any()):
            reasons = [f'{(where & objects).sum()} {reason}' for reason, where in left.items()
                       if (where & objects).any()]
            share = 'all' if not (objects & kept).any() else 'nearly all'
            faults += table.fault(f'objects of the class {name!r}, which are {share} left out by mmdet', REFUSED, lost,
                                  f'{", ".join(reasons)}; bbox is [x, y, width, height] in pixels, area is in square '
                                  'pixels')
    return kept, faults


def _ids(table: Table, use: Use) -> list[Fault]:
    faults, ids = [], table.ids
    kinds = set(map(type, ids))
    good = ids if kinds <= {int, str} else [value for value in ids if type(value) in (int, str, float)]
    if len(set(good)) < len(good):
        twice = repeated(good)
        first = {shown(value): [i for i, one in enumerate(ids) if one == value] for value in twice[:PLACES]}
        places = [f'{value}: {listed(dict.fromkeys(table.names[table.image[i]] for i in where))}'
                  for value, where in first.items()]
        faults.append(Fault('annotation ids that are used more than once', REFUSED, len(twice), places,
                            'mmdet cannot load the file; number the annotations 1, 2, …'))
    if use.renumbered is None:
        return faults
    severity = REPAIRED if use.renumbered else REFUSED
    remedy = ('mmkcla.CocoMetric renumbers them in memory' if use.renumbered else
              "the metric would be wrong; use type='mmkcla.CocoMetric' as evaluator, or number the annotations from 1")
    wrong = {'annotations with the id 0': lambda value: type(value) in (int, float) and value == 0,
             'annotations with text as id': lambda value: isinstance(value, str)}
    if use.renumbered:  # of these, mmdet's metric is right
        wrong |= {'annotations with a negative id': lambda value: type(value) is int and value < 0,
                  f'annotations with an id above {_LARGEST_ID}': lambda value: (
                      type(value) is int and value > _LARGEST_ID),
                  'annotations with a fractional id': lambda value: type(value) is float and value % 1 > 0}
    if kinds <= {int} and ids and min(ids) > 0 and max(ids) <= _LARGEST_ID:
        return faults
    for kind, is_wrong in wrong.items():
        where = np.array([i for i, value in enumerate(ids) if is_wrong(value)], np.int64)
        faults += table.fault(kind, severity, where, remedy)
    return faults


def _names(table: Table, use: Use) -> list[Fault]:
    """Names that occur more than once, of files and categories."""
    faults = []
    if twice := repeated(filter(None, table.names)):
        faults.append(Fault("file names that occur more than once in 'images'", NOTE, len(twice), twice[:PLACES],
                            'each entry is an image of its own with its own objects'))
    wanted = use.classes if use.classes is not None else tuple(dict.fromkeys(table.classes))
    for name in repeated(filter(None, table.classes)):
        numbers = [i for i, other in enumerate(table.classes) if other == name]
        objects = {i: int((table.category == i).sum()) for i in numbers}
        unused = [i for i in numbers if not objects[i]]
        places = [f'id {shown(table.category_ids[i])}: {plural(objects[i], "object")}' for i in numbers]
        # mmdet takes every category of a wanted name, in the order of the file, and numbers them
        labels = [i for i, one in enumerate(table.classes) if one in wanted][:len(wanted)]
        harmless = name not in wanted or len(unused) >= len(numbers) - 1 and not (
            set(unused) & set(labels) and len(unused) < len(numbers)) and len(
            {table.classes[i] for i in labels}) == len(labels)
        if harmless:
            remedy = 'the unused one has no effect'
        elif unused and len(unused) < len(numbers):
            remedy = (f'delete the unused {listed([f"category {shown(table.category_ids[i])}" for i in unused])} from '
                      "the file's categories, which shifts the labels")
        else:
            remedy = 'give the categories different names, or all their objects one category_id'
        faults.append(Fault(f'categories with the name {name!r}', NOTE if harmless else REFUSED, len(numbers),
                            places[:PLACES], remedy))
    plain = Counter(plain_name(name) for name in dict.fromkeys(table.classes))
    if alike := [repr(name) for name in dict.fromkeys(table.classes) if plain[plain_name(name)] > 1]:
        faults.append(Fault('category names that differ only by case or spaces', NOTE, len(alike), alike[:PLACES],
                            'they are different classes; if they mean the same, give their objects one category_id'))
    return faults


def _image_references(table: Table) -> list[Fault]:
    refs = table.image_refs
    if not refs:
        return []
    where = np.array(list(refs), np.int64)
    cause = _other_type(list(refs.values()), table.image_ids)
    if cause:
        return table.fault('annotations whose image_id is of another type than the ids of the images', REFUSED, where,
                           f'{cause}; write both the same way', lambda i: f'image_id {shown(refs[i])}')
    everything = len(where) == len(table.ids)
    return table.fault('annotations of unknown images', REFUSED if everything else DROPPED, where,
                       "no image_id is an id of 'images'" if everything else 'mmdet leaves them out',
                       lambda i: f'image_id {shown(refs[i])}')


def _category_references(table: Table) -> list[Fault]:
    refs = table.category_refs
    if not refs:
        return []
    where = np.array(list(refs), np.int64)
    kind, severity, remedy = 'annotations of unknown categories', DROPPED, 'mmdet leaves them out'
    known = [value for value in table.category_ids if type(value) is int]
    numbers = {value for value in refs.values() if type(value) is int}
    numbers |= {table.category_ids[i] for i in set(table.category.tolist()) - {-1}}
    if cause := _other_type(list(refs.values()), table.category_ids):
        kind = 'annotations whose category_id is of another type than the ids of the categories'
        severity, remedy = REFUSED, f'{cause}; write both the same way'
    elif known and numbers and all(type(value) is int for value in numbers) and (
            shift := next((by for by in (1, -1) if {value + by for value in numbers} <= set(known)), 0)):
        severity = REFUSED
        remedy = (f'category_id counts from {min(numbers)}, the categories from {min(known)}: each object has the '
                  f'label of its neighbour; {"add" if shift > 0 else "subtract"} 1 '
                  f'{"to" if shift > 0 else "from"} each category_id')
    elif len(where) > len(table.ids) / 2:
        severity, remedy = REFUSED, "most objects have no category in 'categories'"
    return table.fault(kind, severity, where, remedy, lambda i: f'category_id {shown(refs[i])}')


def _other_type(refs: Sequence[Any], known: Sequence[Any]) -> str:
    """Says that text is compared with numbers, where they would be equal; '' otherwise."""
    names = {str(value) for value in known}
    same = [value for value in refs if str(value) in names]
    if not same:
        return ''
    text = isinstance(same[0], str)
    return f'they are {"text" if text else "numbers"}, the ids are {"numbers" if text else "text"}'


def _crowds(table: Table, use: Use) -> list[Fault]:
    here = used(table, use)
    remedy = 'crowds are ignored in training and evaluation; write iscrowd 0 for single objects'
    if here.any() and table.crowd[here].mean() >= _MOST:
        return table.fault('objects with iscrowd 1', REFUSED, here & table.crowd,
                           f'{table.crowd[here].mean():.0%} of all; {remedy}')
    faults = []
    for number, name in enumerate(table.classes):
        objects = here & (table.category == number)
        if objects.any() and table.crowd[objects].all():
            faults += table.fault(f'objects of the class {name!r}, all with iscrowd 1',
                                  REFUSED if objects.sum() > 1 else NOTE, objects, remedy)
    return faults


def _masks(table: Table, use: Use, kept: np.ndarray) -> list[Fault]:
    faults = table.fault('segmentations with a value that is not a finite number', REFUSED,
                         table.segmentation == NOT_NUMBERS, 'polygons are lists of numbers [x, y, x, y, …]')
    if use.masks is False:
        return faults
    for kind, (text, remedy) in REFUSED_KINDS.items():
        unread = use.polygons_only and kind == OTHER_SIZE or use.masks is None and kind == ABSENT
        if not unread:
            faults += table.fault(text, REFUSED, kept & (table.segmentation == kind), remedy)
    faults += _no_polygons(table, use, kept)
    faults += table.fault('objects with a polygon of fewer than 3 points, or with half a point', NOTE,
                          kept & (table.segmentation == SOME_SHORT), 'mmdet leaves out these polygons')
    if use.polygons_only:
        runs = kept & ((table.segmentation == RUNS) | (table.segmentation == OTHER_SIZE))
        faults += table.fault('objects with run-length masks', DROPPED, runs & ~table.crowd,
                              'poly2mask=False reads polygons only; set poly2mask=True')
    return faults


def _no_polygons(table: Table, use: Use, kept: np.ndarray) -> list[Fault]:
    """Objects whose polygons are none: boxes, lines or points. Refused for masks if they are not a few only."""
    short = kept & (table.segmentation == ALL_SHORT)
    kind = 'objects whose polygons all have fewer than 3 points, or half a point'
    evaluated = 'a segm metric reads 4 numbers as a box [x, y, width, height], and fails on less'
    here = kept & ~table.crowd
    groups = [here, *(here & (table.category == number) for number in range(len(table.classes)))]
    many = any((short & group).sum() >= max(_LEAST_SHORT, _MANY_SHORT * group.sum()) for group in groups)
    if use.masks and (many or (short & here).sum() == here.sum() > 0):
        return table.fault(kind, REFUSED, short, 'these are no masks, and a mask head needs one for each object; '
                           f'{evaluated}; write the outlines, or train a detector of boxes')
    return table.fault(kind, DROPPED, short, f'mmdet ignores them when a mask head is trained; {evaluated}')


def _twins(table: Table, use: Use) -> list[Fault]:
    """Objects that are in the file more than once."""
    where = np.flatnonzero(used(table, use) & ~table.crowd & ~np.isnan(table.box[:, 0]))
    columns = (*table.box[where].T, table.category[where], table.image[where])
    order = np.lexsort(columns)
    same = np.all([np.diff(column[order]) == 0 for column in columns], axis=0)
    return table.fault('objects with the image, class and box of an earlier one', NOTE, np.sort(where[order[1:][same]]),
                       'a detector can match one of them, the others count as missed; delete them',
                       lambda i: f'bbox {numbers_of(table.box[i])}')


def _filtered(table: Table, use: Use, kept: np.ndarray) -> list[Fault]:
    """Images that ``filter_cfg`` removes, and a data set that has nothing left."""
    count, faults = len(table.names), []
    small, empty = _removed(table, use)
    removed = small | empty
    for where, what in ((small, f'smaller than min_size={use.filters.get("min_size")}'), (empty, 'without an object')):
        if where.any():
            places = [table.names[i] for i in np.flatnonzero(where)[:PLACES]]
            faults.append(Fault(f'images {what}', DROPPED, int(where.sum()), places,
                                'filter_cfg removes them from the data set'))
    if count and removed.all():
        faults.insert(0, Fault('images, all of which filter_cfg removes', REFUSED, count, table.names[:PLACES],
                               'change filter_cfg (filter_empty_gt, min_size), or the labels'))
    return faults


def _removed(table: Table, use: Use) -> tuple[np.ndarray, np.ndarray]:
    """``(M,)`` the images that ``filter_cfg`` removes as too small, and the others that it removes as empty."""
    small, empty = np.zeros(len(table.names), bool), np.zeros(len(table.names), bool)
    if use.filters and len(small):
        small = ~(table.sizes.min(1) >= use.filters.get('min_size', 0))
    if use.filters.get('filter_empty_gt'):
        empty = ~small
        empty[table.image[_of_classes(table, use)]] = False
    return small, empty


def usable_masks(table: Table) -> np.ndarray:
    """``(N,)`` whether an annotation has a segmentation that can be read."""
    return np.isin(table.segmentation, USABLE)
