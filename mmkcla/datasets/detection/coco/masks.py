"""The segmentations of a COCO file: the kind of each, its extent and its area."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
from msgspec import Raw

from .runs import extent, run_lengths

ABSENT, POLYGONS, SOME_SHORT, ALL_SHORT, RUNS, OTHER_SIZE, FLAT, NOT_NUMBERS, INVALID, BAD_RUNS = range(10)
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
    BAD_RUNS: ('run-length masks whose counts are damaged', 'counts are a list of whole numbers from 0, or the text '
                                                            'that pycocotools writes; their sum is height × width'),
}
_POLYGONS = msgspec.json.Decoder(list[list[float]])
_BATCH = 2 ** 18  # numbers that are held as Python objects


class Masks:
    """The segmentations of N annotations.

    Attributes:
        kinds: ``(N,)`` one of the constants above.
        extents: ``(N, 4)`` left, top, right and bottom edge of the mask in pixels; NaN for an empty mask, and where
            there is none that can be read.
        areas: ``(N,)`` square pixels, the sum over the polygons; NaN where there is no mask that can be read.
    """

    def __init__(self, values: Sequence[Raw], image: np.ndarray, sizes: np.ndarray) -> None:
        """Read the segmentations.

        Args:
            values: JSON text of each.
            image: ``(N,)`` index of its image; -1: unknown.
            sizes: ``(M, 2)`` width and height of the images.
        """
        self.kinds = np.zeros(len(values), np.uint8)
        self.extents = np.full((len(values), 4), np.nan)
        self.areas = np.full(len(values), np.nan)
        self._numbers: list[float] = []  # of the polygons that are still to be measured
        self._lengths: list[int] = []  # numbers of each polygon
        self._owners: list[int] = []  # and the annotation it belongs to
        for number, raw in enumerate(values):
            try:
                polygons = _POLYGONS.decode(raw)
            except (msgspec.DecodeError, RecursionError):
                self._other(number, raw, sizes[image[number]] if image[number] >= 0 else None)
            else:
                self._polygons(number, polygons)
        self._measure()

    def _polygons(self, number: int, polygons: list[list[float]]) -> None:
        if not polygons:
            return
        # mmdet leaves out polygons of fewer than three points or with half a point
        good = [points for points in polygons if len(points) >= 6 and len(points) % 2 == 0]
        self.kinds[number] = POLYGONS if len(good) == len(polygons) else SOME_SHORT if good else ALL_SHORT
        for points in good:
            self._numbers += points
            self._lengths.append(len(points))
            self._owners.append(number)
        if len(self._numbers) > _BATCH:
            self._measure()

    def _measure(self) -> None:
        """Extents and areas of the polygons that wait."""
        if not self._owners:
            return
        x, y = np.array(self._numbers, np.float64).reshape(-1, 2).T
        ends = np.cumsum(self._lengths) // 2
        starts = np.concatenate([[0], ends[:-1]])
        following = np.arange(1, len(x) + 1)
        following[ends - 1] = starts
        owners, first = np.unique(self._owners, return_index=True)
        points = starts[first]
        self.extents[owners] = np.stack([np.minimum.reduceat(x, points), np.minimum.reduceat(y, points),
                                         np.maximum.reduceat(x, points), np.maximum.reduceat(y, points)], 1)
        with np.errstate(over='ignore', invalid='ignore'):
            each = np.abs(np.add.reduceat(x * y[following] - x[following] * y, starts)) / 2
            self.areas[owners] = np.add.reduceat(each, first)
        self._numbers, self._lengths, self._owners = [], [], []

    def _other(self, number: int, raw: Raw, size: np.ndarray | None) -> None:
        try:
            value = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            self.kinds[number] = NOT_NUMBERS  # NaN or Infinity
            return
        except RecursionError:
            self.kinds[number] = INVALID
            return
        kind = _kind(value)
        if kind == RUNS:
            height, width = map(int, value['size'])
            runs = run_lengths(value['counts'], height, width)
            if runs is None:
                kind = BAD_RUNS
            elif size is not None and (width, height) != tuple(size):
                kind = OTHER_SIZE
            else:
                self.extents[number], self.areas[number] = extent(runs, height), runs[1::2].sum()
        self.kinds[number] = kind


def _kind(value: Any) -> int:
    if not value:
        return ABSENT
    if isinstance(value, list):
        if all(isinstance(part, list) for part in value):
            return NOT_NUMBERS
        return FLAT if all(map(_is_number, value)) else INVALID
    if not isinstance(value, dict) or 'counts' not in value:
        return INVALID
    shape = value.get('size')
    if not isinstance(shape, list) or len(shape) != 2 or not all(_is_number(side) and 1 <= side < 2 ** 31 and
                                                                 side == int(side) for side in shape):
        return INVALID
    return RUNS


def outlines(raw: Raw) -> list[list[float]]:
    """The polygons ``[x, y, …]`` of a segmentation, those of run lengths found on its pixels; none if it is damaged."""
    try:
        return [points[:len(points) // 2 * 2] for points in _POLYGONS.decode(raw)]
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return []
    if _kind(value) != RUNS:
        return []
    height, width = map(int, value['size'])
    runs = run_lengths(value['counts'], height, width)
    if runs is None:
        return []
    pixels = np.repeat(np.arange(len(runs), dtype=np.uint8) & 1, runs).reshape(width, height).T
    found, _ = cv2.findContours(np.ascontiguousarray(pixels), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [contour.ravel().astype(float).tolist() for contour in found]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf
