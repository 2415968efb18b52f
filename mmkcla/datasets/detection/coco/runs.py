"""Run-length masks of COCO: their runs, checked, and the extent of the mask, without decoding it to pixels.

The runs of ``counts`` alternate between background and foreground, start with background, and go down the columns.
``counts`` is a list of them, or the text that pycocotools writes. pycocotools reads beyond the end of an unfinished
text and accepts wrong sums, so the text is parsed here.
"""
from __future__ import annotations

from typing import Any

import numpy as np


def run_lengths(counts: Any, height: int, width: int) -> np.ndarray | None:
    """The runs ``(R,)`` int64; None if ``counts`` is not a valid mask of this size."""
    runs = _of_list(counts) if isinstance(counts, list) else _of_text(counts)
    pixels = height * width
    if runs is None or not len(runs) or runs.min() < 0 or runs.max() > pixels or runs.sum() != pixels:
        return None
    return runs


def _of_list(counts: list) -> np.ndarray | None:
    if not all(type(value) in (int, float) and 0 <= value < 2 ** 53 and value == int(value) for value in counts):
        return None
    return np.array(counts, np.int64)


def _of_text(text: Any) -> np.ndarray | None:
    """Groups of 5 bits from the low end, 32 in a character meaning that more follow; from the third run on, the
    difference to the run two before."""
    if not isinstance(text, str):
        return None
    try:
        values = np.frombuffer(text.encode('ascii'), np.uint8).astype(np.int64) - 48
    except UnicodeEncodeError:
        return None
    if not len(values) or values.min() < 0 or values.max() > 63 or values[-1] & 32:
        return None
    last = np.flatnonzero(values & 32 == 0)
    first = np.concatenate([[0], last[:-1] + 1])
    if (last - first).max() > 7:  # more than 40 bits
        return None
    shift = 5 * (np.arange(len(values)) - np.repeat(first, last - first + 1))
    runs = np.add.reduceat((values & 31) << shift, first)
    runs -= np.where(values[last] & 16, 1 << (shift[last] + 5), 0)  # the sign
    runs[2::2] = np.cumsum(np.concatenate([[0], runs[2::2]]))[1:]
    runs[1::2] = np.cumsum(runs[1::2])
    return runs


def extent(runs: np.ndarray, height: int) -> tuple[float, float, float, float]:
    """Left, top, right and bottom edge of the foreground in pixels; NaN if there is none."""
    ends = np.cumsum(runs)
    start, end = (ends - runs)[1::2], ends[1::2]
    start, end = start[end > start], end[end > start] - 1
    if not len(start):
        return (np.nan,) * 4
    left, right = start[0] // height, end[-1] // height + 1
    if (start // height != end // height).any():  # a run over two columns
        return float(left), 0., float(right), float(height)
    return float(left), float((start % height).min()), float(right), float((end % height).max() + 1)
