"""The segmentations of a COCO file: which kind each is, and what a host makes of it."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

ABSENT, POLYGONS, SOME_SHORT, ALL_SHORT, RUNS, OTHER_SIZE, FLAT, NOT_NUMBERS, INVALID = range(9)
USABLE = (POLYGONS, SOME_SHORT, RUNS)
# what LoadAnnotations of mmdet does with the kinds that it cannot use
REFUSED_KINDS = {
    ABSENT: ('objects without a segmentation', 'a mask head needs one for each object; remove these objects, or train '
                                               'a detector of boxes'),
    OTHER_SIZE: ('run-length masks of another size than their image', 'their "size" must be [height, width] of the '
                                                                      'image'),
    FLAT: ('segmentations that are one flat list', 'a segmentation is a list of polygons: [[x, y, x, y, …], …]'),
    INVALID: ('segmentations that are neither polygons nor run-length masks', 'write [[x, y, x, y, …], …] or '
                                                                             '{"size": [height, width], "counts": …}'),
}
_POLYGONS = msgspec.json.Decoder(list[list[float]])


def look_at_segmentations(values: Sequence[Raw], image: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The kind of each segmentation.

    Args:
        values: JSON text of each.
        image: ``(N,)`` index of its image; -1: unknown.
        sizes: ``(M, 2)`` width and height of the images.
    """
    kinds = np.zeros(len(values), np.uint8)
    for number, raw in enumerate(values):
        try:
            kinds[number] = _polygon_kind(_POLYGONS.decode(raw))
        except msgspec.DecodeError:
            kinds[number] = _other_kind(raw, sizes[image[number]] if image[number] >= 0 else None)
    return kinds


def _polygon_kind(polygons: list[list[float]]) -> int:
    if not polygons:
        return ABSENT
    # mmdet leaves out polygons of fewer than three points or with half a point
    short = sum(len(points) < 6 or len(points) % 2 != 0 for points in polygons)
    return POLYGONS if not short else ALL_SHORT if short == len(polygons) else SOME_SHORT


def _other_kind(raw: Raw, size: np.ndarray | None) -> int:
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return NOT_NUMBERS  # NaN or Infinity
    if not value:
        return ABSENT
    if isinstance(value, list):
        if all(isinstance(part, list) for part in value):
            return NOT_NUMBERS
        return FLAT if all(map(_is_number, value)) else INVALID
    if not isinstance(value, dict) or not isinstance(value.get('counts'), (list, str)):
        return INVALID
    shape = value.get('size')
    if not isinstance(shape, list) or len(shape) != 2 or not all(map(_is_number, shape)):
        return INVALID
    counts = value['counts']
    if isinstance(counts, list) and (not all(map(_is_number, counts)) or sum(counts) != shape[0] * shape[1]):
        return INVALID
    return RUNS if size is None or (shape[1], shape[0]) == tuple(size) else OTHER_SIZE


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
