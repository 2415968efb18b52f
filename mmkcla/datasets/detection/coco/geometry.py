"""Boxes, masks and areas of a COCO file that contradict each other, or the size of the image.

A converter makes the same mistake in all objects of a class, while single objects differ in good files as well. So a
class is judged by most of its objects, or by a tenth of them where box and mask hardly overlap.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ....utils.text import listed
from ...report import NOTE, REFUSED, Fault
from .masks import RUNS, USABLE
from .table import Table

_MOST = 0.9  # share of the objects from which a property is taken as one of the file
_LEAST = 3  # objects from which a class is judged
_BEYOND = 1 / 3  # share of the boxes that reach beyond the image from which the format is in question
_SOME_BEYOND = 0.1  # the same for formats in which no box reaches beyond it
_OVERLAP = 0.5  # IoU of box and extent of the mask below which they are not of the same object
_SOME_APART = 0.1  # share of such objects from which a class is refused
_LARGE, _SMALL, _SMALL_BOX = 2, 1 / 3, 1 / 100  # areas: above this times the box, below this times the mask, the box
_XYWH = 'bbox is [x, y, width, height] in pixels'
# formats of boxes: what they are, how to write them, and their corners as [left, top, right, bottom]
_CORNERS = ('two corners [x1, y1, x2, y2]', 'write [x1, y1, x2 - x1, y2 - y1]', lambda a, b, c, d: (a, b, c, d))
_CENTRES = ('centre and size [x, y, width, height]', 'write [x - width / 2, y - height / 2, width, height]',
            lambda a, b, c, d: (a - c / 2, b - d / 2, a + c / 2, b + d / 2))
_SWAPPED = ('[y, x, height, width]', 'write [x, y, width, height]', lambda a, b, c, d: (b, a, b + d, a + c))
_CORNERS_SWAPPED = ('two corners [y1, x1, y2, x2]', 'write [x1, y1, x2 - x1, y2 - y1]', lambda a, b, c, d: (b, a, d, c))


def numbers_of(values: np.ndarray) -> str:
    """Four numbers for messages."""
    return '[' + ', '.join(f'{value:.4g}' for value in values) + ']'


def geometry_faults(table: Table, masks: bool | None) -> list[Fault]:
    """The faults of boxes, masks and areas.

    Args:
        table: the file.
        masks: whether masks are used; None: unknown.
    """
    faults = _formats(table)
    if not any(fault.severity == REFUSED for fault in faults):
        faults += _disagreements(table, masks)
    return faults + _areas(table)


def _groups(table: Table, where: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """For each class, the words for it and which objects at ``where`` are of it, as bools."""
    category = table.category[where]
    for number, name in enumerate(table.classes):
        yield f' of the class {name!r}', category == number


def _box(table: Table) -> Callable[[int], str]:
    return lambda i: f'bbox {numbers_of(table.box[i])}'


# Boxes against the image

def _formats(table: Table) -> list[Fault]:
    """Boxes of another format, of the whole file or of a class: relative to the image, or as corners or centres."""
    where = np.flatnonzero((table.image >= 0) & ~np.isnan(table.box[:, 0]) & ~table.crowd)
    if not len(where):
        return []
    if fault := _format(table, where, '', 0):
        return fault
    box, size = table.box[where], table.sizes[table.image[where]]
    wide = ((box[:, :2] + box[:, 2:] > size + np.maximum(2, 0.02 * size)).any(1) & (box[:, 2:] >= 1).all(1))
    kind = 'reach beyond their image by more than 2 %'
    if wide.mean() > 0.5:
        return table.fault(f'boxes that {kind}', REFUSED, where[wide], 'most boxes do, so width and height, or the '
                           'boxes, are those of another image size', _box(table))
    faults = []
    for words, group in _groups(table, where):
        beyond = group & wide
        if fault := _format(table, where[group], words, _LEAST):
            faults += fault
        elif beyond.sum() > max(_LEAST, 0.5 * group.sum()):
            faults += table.fault(f'boxes{words} that {kind}', REFUSED, where[beyond], 'most boxes of the class do; '
                                  f'{_XYWH}', _box(table))
    return faults + table.fault(f'boxes that {kind}', NOTE, where[wide], 'trained on as far as they are inside, '
                                'evaluated as they are', _box(table))


def _format(table: Table, where: np.ndarray, words: str, least: int) -> list[Fault]:
    """The format of the boxes at ``where``, if it is another one, as a fault."""
    if len(where) < max(1, least):
        return []
    box, size = table.box[where], table.sizes[table.image[where]]
    relative = (box >= 0).all(1) & (box <= 1).all(1) & (box % 1 > 0).any(1)
    if relative.mean() >= _MOST:
        return table.fault(f'boxes{words} that are relative to the image (0 to 1)', REFUSED, where[relative],
                           f'{_XYWH}; multiply by width and height', _box(table))
    slack = np.maximum(2, 0.02 * size)
    beyond = (box[:, :2] + box[:, 2:] > size + slack).any(1)
    for (name, write, corners), share, enough in ((_CORNERS, _BEYOND, 0.98), (_SWAPPED, _SOME_BEYOND, 1),
                                                  (_CENTRES, _SOME_BEYOND, 1), (_CORNERS_SWAPPED, _BEYOND, 1)):
        if beyond.mean() < share or beyond.sum() < (least if name == _CORNERS[0] else _LEAST):
            continue
        left, top, right, bottom = corners(*box.T)
        inside = ((left >= -slack[:, 0]) & (top >= -slack[:, 1]) & (right <= size[:, 0] + slack[:, 0])
                  & (bottom <= size[:, 1] + slack[:, 1]) & (right > left) & (bottom > top))
        if inside.mean() >= enough:
            return table.fault(f'boxes{words} that are {name}', REFUSED, where[beyond],
                               f'as [x, y, width, height] they reach beyond the image; {write}', _box(table))
    return []


# Boxes against masks

def _disagreements(table: Table, masks: bool | None) -> list[Fault]:
    """Classes in which most masks do not lie in their boxes, and single objects of this kind."""
    where = np.flatnonzero(np.isin(table.segmentation, USABLE) & (table.image >= 0) & ~np.isnan(table.box[:, 0]))
    box = table.box[where]
    visible = (np.minimum(box[:, :2] + box[:, 2:], table.sizes[table.image[where]]) > np.maximum(box[:, :2], 0)).all(1)
    where = where[visible]  # the others are faults of their own
    if not len(where):
        return []
    differs = ~_same(table, where, table.extent[where], _corners(table.box[where]))
    apart = differs & (_overlap(table, where) < _OVERLAP)
    crowd, faults, single = table.crowd[where], [], []
    groups = [(words, group & ~crowd) for words, group in _groups(table, where)]
    for words, group in [*groups, (', which are crowds,', crowd)]:
        wrong = group & differs
        if not wrong.any():
            continue
        few = group & apart
        if wrong.sum() >= _LEAST and wrong.sum() > 0.5 * group.sum():
            faults += _disagreement(table, where[wrong], words, masks, crowds=group is crowd)
        elif few.sum() >= _LEAST and few.sum() >= _SOME_APART * group.sum():
            severity = NOTE if group is crowd or masks is False else REFUSED
            faults += table.fault(f'objects{words} whose box and mask hardly overlap', severity, where[few],
                                  f'{few.sum() / group.sum():.0%} of those with both; one of the two is of another '
                                  'object or place; correct it', _both(table))
        else:
            single.append(where[wrong])
    if single and masks is not False:
        faults += table.fault('objects whose box and mask do not agree', NOTE, np.sort(np.concatenate(single)),
                              'correct the box or the segmentation', _both(table))
    return faults


def _overlap(table: Table, where: np.ndarray) -> np.ndarray:
    """IoU of the box and the extent of the mask inside the image; 1 for an empty mask, which is a fault of its own."""
    limit = np.tile(table.sizes[table.image[where]], 2)
    first, second = (np.clip(one, 0, limit) for one in (table.extent[where], _corners(table.box[where])))
    sides = np.minimum(first[:, 2:], second[:, 2:]) - np.maximum(first[:, :2], second[:, :2])
    common = np.maximum(sides, 0).prod(1)
    union = (first[:, 2:] - first[:, :2]).prod(1) + (second[:, 2:] - second[:, :2]).prod(1) - common
    overlap = np.divide(common, union, out=np.ones_like(common), where=union > 0)
    return np.where(np.isnan(overlap), 1, overlap)


def _corners(box: np.ndarray) -> np.ndarray:
    return np.concatenate([box[:, :2], box[:, :2] + box[:, 2:]], 1)


def _same(table: Table, where: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether two extents agree inside the image: to 3 pixels, or 10 % of the larger side."""
    limit = np.tile(table.sizes[table.image[where]], 2)
    first, second = np.clip(first, 0, limit), np.clip(second, 0, limit)
    side = np.maximum(second[:, 2:] - second[:, :2], first[:, 2:] - first[:, :2]).max(1)
    return (np.abs(first - second) <= np.maximum(3, 0.1 * side)[:, None]).all(1)


def _both(table: Table) -> Callable[[int], str]:
    def detail(i: int) -> str:
        left, top, right, bottom = table.extent[i]
        seen = 'empty' if np.isnan(left) else numbers_of(np.array([left, top, right - left, bottom - top]))
        return f'bbox {numbers_of(table.box[i])}, extent of the mask {seen}'
    return detail


def _disagreement(table: Table, where: np.ndarray, words: str, masks: bool | None, crowds: bool) -> list[Fault]:
    cause, of_boxes = _cause(table, where)
    severity = NOTE if crowds or masks is False and not of_boxes else REFUSED
    return table.fault(f'boxes and masks{words} that do not agree', severity, where, cause, _both(table))


def _cause(table: Table, where: np.ndarray) -> tuple[str, bool]:
    """What explains that boxes and masks differ, and whether the boxes may be wrong."""
    box, extents, sizes = table.box[where], table.extent[where], table.sizes[table.image[where]]

    def agree(first: np.ndarray, second: np.ndarray) -> bool:
        return bool(_same(table, where, first, second).mean() >= _MOST)

    if np.isnan(extents[:, 0]).mean() >= _MOST:
        return 'the masks are empty', False
    if (np.abs(extents) <= 1).all(1).mean() >= _MOST:
        return 'the polygons are relative to the image (0 to 1); multiply by width and height', False
    if agree(extents, _corners(box[:, [1, 0, 3, 2]])):
        if (extents[:, 2:] > sizes + 2).any() and (_corners(box)[:, 2:] <= sizes + 2).all():
            return 'the polygons are [y, x, …]; write [x, y, …]', False
        return f'x and y are swapped in one of them; {_XYWH}, polygons are [x, y, …]', True
    for name, write, corners in (_CORNERS, _CENTRES, _CORNERS_SWAPPED):
        if agree(extents, np.stack(corners(*box.T), 1)):
            return f'the boxes are {name}; {write}', True
    for by in (1, 1000):
        if agree(extents, _corners(box) * np.tile(sizes, 2) / by):
            return f'the boxes are relative to the image (0 to {by}); {_XYWH}', True
    if (table.segmentation[where] == RUNS).mean() >= _MOST:
        return ('the counts of a run-length mask start with the background and run down the columns, not along the '
                'rows'), False
    return f'{_XYWH}; correct the boxes or the segmentations', False


# Areas

def _areas(table: Table) -> list[Fault]:
    """Areas that do not fit the box, or the mask where there is one."""
    width, height = table.box[:, 2], table.box[:, 3]
    boxed = (width >= 1) & (height >= 1) & ~table.crowd
    area, box = table.area, width * height
    large = boxed & (area > _LARGE * np.maximum(box, 4))
    masked = boxed & np.isin(table.segmentation, USABLE) & (table.mask_area <= 1.1 * box)
    small = boxed & (area > 0) & (box - area > 16) & (area < _SMALL_BOX * box)
    small[masked] = (area[masked] > 0) & (table.mask_area[masked] - area[masked] > 16) & (
        area[masked] < _SMALL * table.mask_area[masked])
    remedy = 'AP for small, medium and large objects uses area; it is in square pixels'
    return [*_area_fault(table, f'areas of more than {_LARGE} times the box', large, boxed, remedy),
            *_area_fault(table, f'areas of less than {_SMALL:.0%} of the mask', small & masked, masked, remedy),
            *_area_fault(table, f'areas of less than {_SMALL_BOX:.0%} of the box', small & ~masked, boxed & ~masked,
                         remedy)]


def _area_fault(table: Table, kind: str, wrong: np.ndarray, among: np.ndarray, remedy: str) -> list[Fault]:
    def detail(i: int) -> str:
        return f'area {table.area[i]:g}, bbox {numbers_of(table.box[i])}'

    if not wrong.any():
        return []
    names = _classes_of_most(table, wrong, among)
    if wrong.sum() > 0.5 * among.sum():
        return table.fault(kind, REFUSED, wrong, remedy, detail)
    if names:
        return table.fault(kind, REFUSED, wrong, f'most of {listed(map(repr, names))}; {remedy}', detail)
    return table.fault(kind, NOTE, wrong, remedy, detail)


def _classes_of_most(table: Table, wrong: np.ndarray, among: np.ndarray) -> list[str]:
    """The classes of which most objects, and not only a few, are wrong."""
    known = table.category >= 0
    counts, totals = (np.bincount(table.category[where & known], minlength=len(table.classes))
                      for where in (wrong, among))
    return [table.classes[i] for i in np.flatnonzero((counts >= _LEAST) & (counts > 0.5 * totals))]
