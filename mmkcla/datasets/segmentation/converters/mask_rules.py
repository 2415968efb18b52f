"""How the pixels of a mask become classes. A mask that a rule does not fit is refused, never guessed."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from PIL import Image

from mmkcla.datasets.segmentation.converters.layout import Problem
from mmkcla.datasets.segmentation.masks import PixelError, grey
from mmkcla.errors import UserError
from mmkcla.utils.text import listed, plural

THRESHOLD = 127
IGNORE = 255  # mmseg's ignore_index
_LOSSY = ('JPEG', 'MPO')
Settled = tuple[list[Problem], dict[str, Any], list[str]]


class MaskRefused(Exception):
    """The mask does not fit the rule: an error for the whole data set, since the rule is wrong for it."""


class MaskRule(Protocol):
    """Reads the masks of one data set."""

    def read(self, mask: Image.Image) -> tuple[np.ndarray, dict[str, Any]]:
        """The class of each pixel, ``(H, W)`` uint8 or bool, and what the manifest records of this mask.

        Raises:
            PixelError: this mask cannot be used; its pair is left out.
            MaskRefused: the rule does not fit.
        """

    def settle(self, records: Sequence[dict], source: str) -> Settled:
        """After all masks: more problems, entries of the manifest, and notes.

        Raises:
            UserError: the masks do not fit together, or hold nothing to learn.
        """


@dataclass(frozen=True)
class GreyMasks:
    """Foreground is above ``threshold`` on a scale of 0 to 255; masks of 0 and 1 are problems, left out by name."""

    threshold: int = THRESHOLD

    def read(self, mask: Image.Image) -> tuple[np.ndarray, dict[str, Any]]:
        """See :class:`MaskRule`."""
        values = grey(mask)
        if values.max(initial=0) == 1:
            found = 'only the value 1' if values.min() else 'values 0 and 1'
            raise PixelError('0/1 mask', f'{found}: not a grey mask of 0 to 255; multiply it by 255')
        return _two_classes(values, values > self.threshold)

    def settle(self, records: Sequence[dict], source: str) -> Settled:
        """See :class:`MaskRule`."""
        return _empty_masks(records, source, self.threshold), {}, []


@dataclass(frozen=True)
class BinaryMasks:
    """Masks of two classes: all 0/1 or all 0/255; or, by a declared threshold, foreground above it (0 to 254).

    Attributes:
        threshold: None, or a number on a scale of 0 to 255.
        classes: the names of background and foreground, for the manifest.
    """

    threshold: int | None = None
    classes: tuple[str, ...] = ('background', 'foreground')

    def read(self, mask: Image.Image) -> tuple[np.ndarray, dict[str, Any]]:
        """See :class:`MaskRule`."""
        try:
            values = grey(mask)
        except PixelError as error:
            if error.kind == 'coloured mask':
                raise MaskRefused(f'{error.kind} ({error.detail}); for colours that stand for classes give a palette '
                                  '(--palette FILE with lines "name,#rrggbb")') from None
            raise
        found = np.flatnonzero(np.bincount(values.ravel(), minlength=256)).tolist()
        lossy_ones = found in ([0, 1], [1]) and mask.format in _LOSSY
        if self.threshold is not None:
            if self.threshold > 0 and found in ([0, 1], [1]):
                raise MaskRefused(f'the values {_values(found)}: a threshold of {self.threshold} would empty this '
                                  'mask; give no threshold, or 0')
            labels, facts = _two_classes(values, values > self.threshold)
        elif set(found) <= {0, 1} and not lossy_ones or set(found) <= {0, 255}:
            labels, facts = _two_classes(values, values > 0)
        else:
            raise MaskRefused(f'the values {_values(found)}, where 0 and 1, or 0 and 255 are expected; {_remedy(mask)}')
        if len(found) > 1 or found[0] > 0:
            facts['stored'] = f'0/{found[-1]}' if found[-1] in (1, 255) and len(found) < 3 else 'grey'
        return labels, facts

    def settle(self, records: Sequence[dict], source: str) -> Settled:
        """See :class:`MaskRule`."""
        first: dict[str, str] = {}
        for record in records:
            if 'stored' in record:
                first.setdefault(record['stored'], record['name'])
        kinds = Counter(record['stored'] for record in records if 'stored' in record)
        notes = []
        if len(kinds) > 1 and self.threshold is None:
            raise UserError(f'{source}: masks with 0 and 1: {kinds["0/1"]} (e.g. {first["0/1"]}), with 0 and '
                            f'255: {kinds["0/255"]} (e.g. {first["0/255"]}): 255 may mean foreground or '
                            '"ignore"; if all values above 0 are foreground, give --threshold 0')
        if self.threshold is not None:
            numbers = ', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))
            notes.append(f'foreground is above {self.threshold} (masks as stored: {numbers or "all empty"})')
        problems = _empty_masks(records, source, self.threshold or 0)
        return problems, {'classes': list(self.classes)}, notes


@dataclass(frozen=True)
class LabelMasks:
    """Masks of K classes: the values 0 to K-1 and 255 for "ignore", indices of a palette PNG, or declared colours.

    Attributes:
        classes: the names of the K classes.
        colours: the label of each colour ``0xrrggbb`` in place of values; None: values.
    """

    classes: tuple[str, ...]
    colours: Mapping[int, int] | None = None

    def read(self, mask: Image.Image) -> tuple[np.ndarray, dict[str, Any]]:
        """See :class:`MaskRule`."""
        if mask.format in _LOSSY:
            raise MaskRefused('a JPEG mask: its compression changes labels; save masks as PNG')
        labels = _labels(mask) if self.colours is None else self._by_colour(mask)
        counts = np.bincount(labels.ravel(), minlength=256)
        wrong = [value for value in np.flatnonzero(counts).tolist() if value >= len(self.classes) and value != IGNORE]
        if wrong:
            raise MaskRefused(f'the value {_values(wrong)}, but there are {len(self.classes)} classes (values 0 to '
                              f'{len(self.classes) - 1}, and {IGNORE} for "ignore")')
        facts: dict[str, Any] = {'pixels': counts[:len(self.classes)].tolist()}
        if counts[IGNORE]:
            facts['ignored'] = int(counts[IGNORE])
        return labels, facts

    def settle(self, records: Sequence[dict], source: str) -> Settled:
        """See :class:`MaskRule`."""
        if not records:
            return [], {}, []
        pixels = np.sum([record['pixels'] for record in records], axis=0)
        ignored = sum(record.get('ignored', 0) for record in records)
        if not pixels.any():
            raise UserError(f'{source}: all pixels of all masks are {IGNORE} ("ignore")')
        present = [name for name, count in zip(self.classes, pixels, strict=True) if count]
        if len(present) == 1 and any(record['split'] == 'train' for record in records):
            raise UserError(f'{source}: {self._one_class(present[0], ignored)}')
        notes = []
        if (absent := [name for name, count in zip(self.classes, pixels, strict=True) if not count]):
            notes.append(f'without a pixel in any mask: {listed(absent, 10)}')
        train = [record['pixels'] for record in records if record['split'] == 'train']
        missing = [name for name, count in zip(self.classes, np.sum(train, axis=0), strict=True)
                   if not count and name not in absent] if train else []
        if missing:
            notes.append(f'without a pixel in train: {listed(missing, 10)}')
        if ignored:
            masks = sum('ignored' in record for record in records)
            share = 100 * ignored / (ignored + int(pixels.sum()))
            notes.append(f'{ignored} pixels ({share:.1f} %) in {plural(masks, "mask")} are {IGNORE} ("ignore")')
        facts = {'classes': list(self.classes), 'ignore_index': IGNORE,
                 'pixels': dict(zip(self.classes, pixels.tolist(), strict=True)), 'ignored_pixels': ignored}
        return [], facts, notes

    def _one_class(self, name: str, ignored: int) -> str:
        """Why masks with the pixels of one class are refused, and what to do."""
        if ignored and name == self.classes[0] and self.colours is None:
            return ('the masks have only the values 0 and 255, and 255 means "ignore" in masks of classes, so nothing '
                    f'but {name} would be learned; for foreground of 255, leave out --num-classes and name two classes '
                    'at most, or replace 255 by 1')
        return f'all masks have only the class {name}, so there is nothing to learn; check the folder of the masks'

    def _by_colour(self, mask: Image.Image) -> np.ndarray:
        red, green, blue = np.moveaxis(np.asarray(mask.convert('RGB')).astype(np.uint32), -1, 0)
        values, places = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
        if unknown := [f'#{value:06x}' for value in values.tolist() if value not in self.colours]:
            raise MaskRefused(f'the colour {listed(unknown)} is not in the palette')
        table = np.array([self.colours[value] for value in values.tolist()], np.uint8)
        return table[places.reshape(red.shape)]


def _labels(mask: Image.Image) -> np.ndarray:
    """The values of a mask, or the indices of a palette PNG, as ``(H, W)`` uint8."""
    if mask.mode in ('L', 'P', '1'):
        return np.asarray(mask).astype(np.uint8)
    if mask.mode[0] in 'IF':
        values = np.asarray(mask)
        if values.size and (values.min() < 0 or values.max() > 255 or (values % 1 != 0).any()):
            raise MaskRefused(f'values from {values.min():g} to {values.max():g}; labels are whole numbers from 0 to '
                              f'254, and {IGNORE} for "ignore"')
        return values.astype(np.uint8)
    red, green, blue = np.moveaxis(np.asarray(mask.convert('RGB')), -1, 0)
    if (red != green).any() or (green != blue).any():
        raise MaskRefused('a coloured mask: give the colours of the classes (--palette FILE with lines "name,#rrggbb")')
    return red


def _two_classes(values: np.ndarray, foreground: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    facts = {'foreground': int(foreground.sum())}
    if not facts['foreground']:
        facts['mask_maximum'] = int(values.max(initial=0))
    return foreground, facts


def _empty_masks(records: Sequence[dict], source: str, threshold: int) -> list[Problem]:
    """Masks without foreground are kept and named; if there are no others, the threshold is wrong."""
    if records and not any(record['foreground'] for record in records):
        largest = max(record['mask_maximum'] for record in records)
        raise UserError(f'{source}: not one of the {len(records)} masks has foreground: no value is above {threshold}, '
                        f'the largest is {largest}; masks are grey, with a foreground of 255')
    if records and all(record['foreground'] == record['width'] * record['height'] for record in records):
        raise UserError(f'{source}: every pixel of all {len(records)} masks is foreground (above {threshold}), so '
                        'there is nothing to learn; check the folder of the masks'
                        + (', or raise --threshold' if 0 < threshold < 254 else ''))
    return [Problem('all-zero mask', record['mask'], f'kept; no value above {threshold}'
                    + (f', the largest is {record["mask_maximum"]}' if record['mask_maximum'] else ''), True)
            for record in records if not record['foreground']]


def _remedy(mask: Image.Image) -> str:
    if mask.format in _LOSSY:
        return ('JPEG compression leaves grey values at edges; if foreground is white, give --threshold 127 '
                '(foreground is what is above)')
    return ('give --threshold 127 if foreground is what is above 127, or --num-classes K (or --classes) if the values '
            'are K classes')


def _values(values: Sequence[int]) -> str:
    return ', '.join(map(str, values[:6])) + (', ...' if len(values) > 6 else '')
