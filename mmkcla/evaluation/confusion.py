"""Confusion matrix of a classification, as a table and a picture."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.logging import print_log
from mmpretrain.evaluation import ConfusionMatrix as HostMatrix

from ..errors import UserError
from ..registry import METRICS
from ..utils.figures import new_figure, sparse_ticks, write_figure
from ..utils.tables import write_csv
from ..utils.text import distinct

TABLE, PICTURE = 'confusion_matrix.csv', 'confusion_matrix.png'
MOST_CLASSES = 50
_MOST_TEXTS = 16  # classes up to which each cell has its numbers


@METRICS.register_module()
class ConfusionReport(HostMatrix):
    """Write :data:`TABLE` and :data:`PICTURE`: rows are the true classes, columns the predicted ones.

    The matrix is that of mmpretrain's ``ConfusionMatrix``: the prediction is the class with the highest score. The
    table has a row per true class with the number of its images, the number predicted as each class (``n: <class>``)
    and the share of the row (``share: <class>``; empty for a class without images). There are no scores.

    Args:
        out_dir: folder of the files.
        most: number of classes above which nothing is written; this is logged.
        num_classes: number of classes; None: that of the scores.
        collect_device, prefix: see mmengine's ``BaseMetric``.

    Raises:
        UserError: during evaluation, for a sample with several labels, or a label outside the classes.
    """

    def __init__(self, out_dir: str, most: int = MOST_CLASSES, num_classes: int | None = None,
                 collect_device: str = 'cpu', prefix: str | None = None) -> None:
        super().__init__(num_classes=num_classes, collect_device=collect_device, prefix=prefix)
        self.out_dir, self.most = Path(out_dir), most

    @property
    def names(self) -> list[str]:
        """Keys that :meth:`evaluate` returns: none."""
        return []

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Append the true and the predicted label of each sample to ``self.results``."""
        for sample in data_samples:
            if (count := sample['gt_label'].numel()) != 1:
                raise UserError(f'ConfusionReport needs one label for each image; {sample.get("img_path", "one")} has '
                                f'{count}')
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Write the files; return no scores."""
        names = list((self.dataset_meta or {}).get('classes') or ())
        self.num_classes = self.num_classes or len(names) or None
        if self.num_classes is None:
            raise UserError('ConfusionReport: neither scores nor class names give the number of classes; set '
                            'num_classes')
        if self.num_classes > self.most:
            print_log(f'no confusion matrix: {self.num_classes} classes are more than {self.most}', 'current')
            return {}
        largest = max(int(result['gt_label'].max()) for result in results)
        if largest >= self.num_classes:
            raise UserError(f'ConfusionReport: a label is {largest}, but there are {self.num_classes} classes')
        matrix = super().compute_metrics(results)['result'].numpy()
        labels = distinct([*names, *range(len(names), len(matrix))][:len(matrix)])
        try:
            write_matrix(self.out_dir, matrix, labels)
        except OSError as error:  # the scores of other metrics must not be lost
            print_log(f'cannot write the confusion matrix to {self.out_dir}: {error}', 'current', logging.WARNING)
        return {}


def write_matrix(folder: Path, matrix: np.ndarray, names: Sequence[str]) -> None:
    """Write the table and the picture of a matrix.

    Args:
        folder: created if missing.
        matrix: ``(C, C)`` numbers of images by true class (rows) and predicted class (columns).
        names: C different class names.
    """
    totals = matrix.sum(1)
    shares = np.divide(matrix, totals[:, None], out=np.full(matrix.shape, np.nan), where=totals[:, None] > 0)
    rows = [{'true': name, 'images': int(total)} | {f'n: {other}': int(count) for other, count in zip(
        names, counts, strict=True)} | {f'share: {other}': float(share) if total else None for other, share in zip(
            names, row, strict=True)} for name, total, counts, row in zip(names, totals, matrix, shares, strict=True)]
    write_csv(folder / TABLE, rows, list(rows[0]))
    write_figure(folder / PICTURE, _draw(matrix, shares, names))


def _draw(matrix: np.ndarray, shares: np.ndarray, names: Sequence[str]) -> Any:
    side = max(4.5, 1.5 + (0.62 if len(names) <= _MOST_TEXTS else 0.22) * len(names))
    figure = new_figure(side + 1, side)
    axes = figure.add_subplot()
    image = axes.imshow(np.nan_to_num(shares), vmin=0, vmax=1, cmap='Blues')
    ticks = sparse_ticks(len(names), MOST_CLASSES)
    short = [name if len(name) <= 20 else f'{name[:19]}…' for name in names]
    axes.set_xticks(ticks, [short[tick] for tick in ticks], rotation=90, parse_math=False)
    axes.set_yticks(ticks, [short[tick] for tick in ticks], parse_math=False)
    axes.set(xlabel='predicted class', ylabel='true class',
             title=f'{int(matrix.trace())} of {int(matrix.sum())} images right')
    if len(names) <= _MOST_TEXTS:
        for row, column in np.argwhere(matrix > 0):
            share = shares[row, column]
            axes.text(column, row, f'{matrix[row, column]}\n{share:.0%}', ha='center', va='center', fontsize=7,
                      color='white' if share > 0.5 else 'black')
    figure.colorbar(image, ax=axes, label='share of the true class', fraction=0.046)
    return figure
