"""Statistics of a data set: one dataclass per task, written as JSON and printed as a short table."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UserError
from ..utils.text import listed

_LEVELS = (0, 5, 10, 50, 95, 100)


@dataclass
class Problem:
    """A problem with the data.

    Attributes:
        what: a noun phrase in the plural.
        places: where, one entry each.
        fatal: nothing can be planned with it.
        split: in which it is, where that matters.
    """

    what: str
    places: list[str]
    fatal: bool = False
    split: str = ''

    def __str__(self) -> str:
        where = f'{self.split}: ' if self.split else ''
        return f'{where}{self.what}: {len(self.places)} ({listed(self.places)})'


@dataclass
class ImageSummary:
    """Statistics of all images: size quantiles in pixels, counts by channels and by bits, pixel mean and standard
    deviation (RGB, 0 to 255); the bits that the values of 16-bit images need, if these are fewer."""

    count: int
    width: dict[str, float]
    height: dict[str, float]
    longer: dict[str, float]
    shorter: dict[str, float]
    channels: dict[str, int]
    bits: dict[str, int]
    mean: list[float]
    std: list[float]
    significant_bits: int | None = None


@dataclass
class Fingerprint:
    """The fields common to all tasks.

    Attributes:
        task: ``'detection'``, ``'segmentation'`` or ``'classification'``.
        splits: images of each split.
        classes: in the order of their labels.
        images: over all splits.
        problems: warnings; a fatal one ends the planning.
    """

    task: str
    splits: dict[str, int]
    classes: list[str]
    images: ImageSummary
    problems: list[Problem] = field(default_factory=list)

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the printed table: name and value."""
        size = self.images
        channels = ', '.join(f'{count} with {name}' for name, count in size.channels.items())
        return [('images', ', '.join(f'{count} {split}' for split, count in self.splits.items())),
                ('size', f'{spread(size.width)} × {spread(size.height)} px'),
                ('channels', f'{channels}; {"/".join(size.bits)} bits'
                 + (f', of which {size.significant_bits} are used' if size.significant_bits else '')),
                *self.label_rows()]

    def label_rows(self) -> list[tuple[str, str]]:
        """The lines on the labels."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """All fields; of each problem its count and first ten places."""
        content = dataclasses.asdict(self)
        content['problems'] = [{'split': problem.split, 'what': problem.what, 'count': len(problem.places),
                                'first': problem.places[:10]} for problem in self.problems]
        return content


@dataclass
class DetectionFingerprint(Fingerprint):
    """Statistics of a COCO data set.

    Attributes:
        objects: of each class in each split, without crowds.
        object_side: square root of the boxes' areas in pixels, quantiles.
        relative_side: the same over the longer side of the image.
        aspect_ratio: height over width of the boxes.
        per_image: objects of an image.
        masks: objects with a segmentation.
        trained: training images with at least one object.
    """

    objects: dict[str, dict[str, int]] = field(default_factory=dict)
    object_side: dict[str, float] = field(default_factory=dict)
    relative_side: dict[str, float] = field(default_factory=dict)
    aspect_ratio: dict[str, float] = field(default_factory=dict)
    per_image: dict[str, float] = field(default_factory=dict)
    masks: int = 0
    trained: int = 0

    @property
    def with_masks(self) -> bool:
        """Whether all objects have a segmentation."""
        return self.masks == sum(sum(counts.values()) for counts in self.objects.values())

    def label_rows(self) -> list[tuple[str, str]]:
        """See the base class."""
        rows = [(f'objects, {split}', class_counts(counts)) for split, counts in self.objects.items()]
        return [*rows, ('object side', f'{spread(self.object_side)} px'),
                ('height/width', spread(self.aspect_ratio)),
                ('objects/image', spread(self.per_image)), ('masks', 'all objects' if self.with_masks else 'not used')]


@dataclass
class ClassificationFingerprint(Fingerprint):
    """Statistics of a folder of class folders: images of each class in each split."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def imbalance(self) -> float:
        """Images of the largest class over those of the smallest, in train."""
        counts = self.counts['train'].values()
        return max(counts) / max(1, min(counts))

    def label_rows(self) -> list[tuple[str, str]]:
        """See the base class."""
        return [('classes', str(len(self.classes))),
                *((f'images, {split}', class_counts(counts)) for split, counts in self.counts.items())]


@dataclass
class SegmentationFingerprint(Fingerprint):
    """Statistics of images and masks.

    Attributes:
        pixels: of each class in each split.
        present: images of each split in which each class occurs.
        shares: share of each class in an image where it occurs, quantiles.
        empty: images whose mask has class 0 alone.
        ignored: share of the pixels that do not count.
    """

    pixels: dict[str, dict[str, int]] = field(default_factory=dict)
    present: dict[str, dict[str, int]] = field(default_factory=dict)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    empty: int = 0
    ignored: float = 0.

    def label_rows(self) -> list[tuple[str, str]]:
        """See the base class."""
        everywhere = {name: sum(counts[name] for counts in self.pixels.values()) for name in self.classes}
        total = max(1, sum(everywhere.values()))
        shares = (f'{name} {share["50"]:.2%}' for name, share in self.shares.items())
        return [('pixels', listed((f'{name} {count / total:.2%}' for name, count in everywhere.items()), 8)),
                *((f'with class, {split}', class_counts(counts)) for split, counts in self.present.items()),
                ('share where present', listed(shares, 8)),
                *([('ignored', f'{self.ignored:.2%} of the pixels')] if self.ignored else [])]


def spread(values: Mapping[str, float]) -> str:
    """``96–128 (median 112)``, or the one value that all have."""
    low, middle, high = (f'{values[level]:.4g}' for level in ('0', '50', '100'))
    return low if low == high else f'{low}–{high} (median {middle})'


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The 0, 5, 10, 50, 95 and 100 % quantiles, keyed by their percent; zeros for no values."""
    found = np.percentile(np.asarray(values, np.float64), _LEVELS) if len(values) else np.zeros(len(_LEVELS))
    return {str(level): float(f'{value:.6g}') for level, value in zip(_LEVELS, found, strict=True)}


def table(fingerprint: Fingerprint) -> str:
    """The fingerprint for the terminal, its problems at the end."""
    rows = fingerprint.rows()
    width = max(len(name) for name, _ in rows)
    lines = [f'{name:<{width}}  {value}' for name, value in rows]
    return '\n'.join(lines + [f'warning: {problem}' for problem in fingerprint.problems])


def refuse_fatal(problems: Sequence[Problem]) -> None:
    """Raise an error for fatal problems.

    Raises:
        UserError: naming them.
    """
    fatal = [str(problem) for problem in problems if problem.fatal]
    if fatal:
        raise UserError('; '.join(fatal))


def class_counts(counts: Mapping[str, int], most: int = 8) -> str:
    """``coin 120, nut 3 and 2 more``."""
    return listed((f'{name} {count}' for name, count in counts.items()), most)
