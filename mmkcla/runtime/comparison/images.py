"""Scores of each test image, as ``mmkcla test`` left them in the folder of a seed."""
from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...evaluation.segmentation.counts import JACCARD_FLOOR, SCORES, scores_from_counts, thresholded_jaccard
from ..per_image import DETECTIONS, FOLDER, TABLE

COUNTS = ('TP', 'FP', 'FN', 'TN')
Score = Callable[[np.ndarray], float]


@dataclass
class ImageScores:
    """Scores of the test images of one seed.

    Attributes:
        folder: of the seed.
        metrics: of the whole test, by key.
        names: of the images, in the order of all values.
        truth: per image, what identifies its ground truth.
        columns: values ``(n,)`` by column of the table.
        empty: rule of the evaluator for empty masks.
    """

    folder: Path
    metrics: Mapping[str, Any]
    names: list[str]
    truth: list[tuple]
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    empty: str = 'one'

    def in_order(self, names: Sequence[str]) -> ImageScores:
        """Return the same scores with the images in another order."""
        places = {name: place for place, name in enumerate(self.names)}
        order = [places[name] for name in names]
        return ImageScores(self.folder, self.metrics, list(names), [self.truth[place] for place in order],
                           {name: values[order] for name, values in self.columns.items()}, self.empty)

    def values(self, metric: str) -> np.ndarray | None:
        """Values ``(n,)`` per image whose mean is the metric; None if it is not a mean over images."""
        name = metric.rpartition('/')[2]
        column = {'mDice_256': 'Dice_256', 'mIoU_256': 'IoU_256'}.get(name, name.removesuffix('_mean'))
        if name.startswith('top') and name in self.columns:
            return self.columns[name] * 100
        if name in ('TJ65_mean', 'failed_share') and 'IoU' in self.columns:
            iou = self.columns['IoU']
            failed = np.where(np.isnan(iou), np.nan, iou < JACCARD_FLOOR)
            return failed if name == 'failed_share' else thresholded_jaccard(iou)
        return self.columns.get(column) if name.endswith('_mean') or column != name else None

    def pooled(self, metric: str) -> np.ndarray | None:
        """Pixel counts ``(n, 4)`` if the metric is a score of all pixels of the set; otherwise None."""
        name = metric.rpartition('/')[2]
        if not name.endswith('_pooled') or name.removesuffix('_pooled') not in SCORES or 'TP' not in self.columns:
            return None
        return np.stack([self.columns[count] for count in COUNTS], axis=-1)

    @cached_property
    def fault(self) -> str:
        """Why these scores are not those of :attr:`metrics`; empty if they are."""
        for metric, expected in self.metrics.items():
            values = self.values(metric)
            if values is None or not isinstance(expected, (int, float)):
                continue
            found = float(np.nanmean(values)) if np.isfinite(values).any() else float('nan')
            if not abs(found - expected) <= 1e-4 * max(1, abs(expected)):
                return (f'{self.folder / FOLDER / TABLE} does not belong to metrics.json: {metric} is {found:.4f} in '
                        f'the one, {expected:.4f} in the other; use --test-only to test again')
        return ''


def read_images(folder: Path, metrics: Mapping[str, Any], empty: str = 'one') -> ImageScores:
    """Read the table of a seed.

    Raises:
        UserError: there is none, or it cannot be read; says why, without the name of the config.
    """
    path = folder / FOLDER / TABLE
    try:
        with open(path, encoding='utf-8', newline='') as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        if (folder / FOLDER / DETECTIONS).exists():
            raise UserError('of the COCO metrics, only AP, AP50 and AP75 are tested over images') from None
        raise UserError(f'{folder} has no scores per image') from None
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f'{path} cannot be read ({error})') from None
    names = [row.get('file') or '' for row in rows]
    if len(set(names)) < len(names) or not names or '' in names:
        raise UserError(f'{path} is damaged or has images without a name of their own; use --test-only to test again')
    try:
        columns = {name: np.array([float(row[name] or 'nan') for row in rows])
                   for name in rows[0] if name not in ('file', 'label', 'predicted')}
        truth: list[tuple]
        if 'TP' in columns:
            found = columns['TP'] + columns['FN'], *(columns[name] for name in ('ignored', 'height', 'width'))
            truth = list(zip(*found, strict=True))
        else:
            truth = [(row['label'],) for row in rows]
    except (KeyError, TypeError, ValueError):
        raise UserError(f'{path} is damaged; use --test-only to test again') from None
    scores = ImageScores(folder, metrics, names, truth, columns, empty)
    if scores.fault:
        raise UserError(scores.fault)
    return scores


def align(sets: Sequence[ImageScores], labels: Sequence[str]) -> list[ImageScores]:
    """Bring several seeds' scores into the order of the first.

    Args:
        sets: of the seeds of one or two configs.
        labels: their names in messages.

    Raises:
        UserError: other images or another ground truth; says which.
    """
    first, aligned = sets[0], [sets[0]]
    for other, label in zip(sets[1:], labels[1:], strict=True):
        only = [sorted(set(one.names) - set(two.names)) for one, two in ((first, other), (other, first))]
        if any(only):
            shown = (only[0] or only[1])[0]
            raise UserError(f'the test images differ: {len(only[0])} only in {labels[0]}, {len(only[1])} only in '
                            f'{label} (for example {shown})')
        other = other.in_order(first.names)
        changed = [name for name, one, two in zip(first.names, first.truth, other.truth, strict=True) if one != two]
        if changed:
            raise UserError(f'the ground truth or its size differs between {labels[0]} and {label} for '
                            f'{len(changed)} of {len(first.names)} images (for example {changed[0]})')
        aligned.append(other)
    return aligned


def pooled_score(metric: str, first: Sequence[ImageScores], second: Sequence[ImageScores]) -> Score | None:
    """Score of a set of images, for :func:`~mmkcla.evaluation.significance.compare_pooled`; the mean over the seeds.

    None if the metric is not a score of all pixels.
    """
    counts = [each.pooled(metric) for each in [*first, *second]]
    if any(each is None for each in counts):
        return None
    half = len(first)
    both = [np.concatenate([one, two]) for one, two in zip(counts[:half], counts[half:], strict=True)]
    name, empty = metric.rpartition('/')[2].removesuffix('_pooled'), first[0].empty
    return lambda codes: float(np.mean([scores_from_counts(each[codes].sum(0), empty)[name] for each in both]))
