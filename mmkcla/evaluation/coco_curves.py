"""Precision-recall curves and AP by object size, from the arrays of a COCO evaluator."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..utils.figures import new_figure, write_figure
from ..utils.tables import write_csv
from ..utils.text import distinct

MOST_LINES = 20  # classes up to which each has a line
MAP_DETECTIONS = 100  # best detections of an image that count for mAP


def write_curves(folder: Path, evaluator: Any) -> None:
    """Write ``precision_recall.<kind>.csv`` and ``.png`` and ``ap_by_size.<kind>.csv``; kind: ``bbox`` or ``segm``.

    The curves have the precision at 101 recalls, for all sizes of objects, at each IoU threshold and as a mean over
    them. A class without objects of a size has empty cells.

    Args:
        folder: created if missing.
        evaluator: a ``COCOeval`` after ``accumulate``.
    """
    params, kind = evaluator.params, evaluator.params.iouType
    most = list(params.maxDets).index(MAP_DETECTIONS) if MAP_DETECTIONS in params.maxDets else -1
    precision = np.asarray(evaluator.eval['precision'], float)[..., most]  # (IoU, recall, class, size)
    precision = np.where(precision < 0, np.nan, precision)
    names = distinct([evaluator.cocoGt.cats[id_]['name'] for id_ in params.catIds])
    limits = {f'IoU {limit:.2f}': index for index, limit in enumerate(params.iouThrs)}
    curves = precision[..., 0]
    rows = [dict(recall=float(recall)) | {'class': name, 'mean': _number(curves[:, point, label].mean())}
            | {limit: _number(curves[index, point, label]) for limit, index in limits.items()}
            for label, name in enumerate(names) for point, recall in enumerate(params.recThrs)]
    write_csv(folder / f'precision_recall.{kind}.csv', rows, ['class', 'recall', *limits, 'mean'])
    sizes = [str(label) for label in params.areaRngLbl]
    table = [{'class': name} | {
        f'AP {size}': _mean(precision[:, :, label, number]) for number, size in enumerate(sizes)}
        for label, name in enumerate(names)]
    table.append({'class': 'mean of the classes'} | {
        f'AP {size}': _mean(precision[..., number]) for number, size in enumerate(sizes)})
    write_csv(folder / f'ap_by_size.{kind}.csv', table, ['class', *(f'AP {size}' for size in sizes)])
    write_figure(folder / f'precision_recall.{kind}.png', _draw(evaluator, precision, names, sizes))


def _draw(evaluator: Any, precision: np.ndarray, names: list[str], sizes: list[str]) -> Any:
    """Left: the classes; right: the sizes of objects, as a mean over the classes. Both at the first IoU threshold."""
    figure = new_figure(11, 4.5)
    recalls, first = evaluator.params.recThrs, precision[0]
    left, right = figure.subplots(1, 2, sharey=True)
    for label, name in enumerate(names if len(names) <= MOST_LINES else []):
        left.plot(recalls, first[:, label, 0], label=name.replace('$', r'\$').lstrip('_'), linewidth=1)
    left.plot(recalls, _over_classes(first[..., 0]), 'k--', label='mean of the classes')
    for number, size in enumerate(sizes):
        right.plot(recalls, _over_classes(first[..., number]), label=size)
    for axes, title in ((left, 'classes'), (right, 'sizes of objects')):
        axes.set(xlabel='recall', xlim=(0, 1), ylim=(0, 1.02), title=f'{title}, IoU {evaluator.params.iouThrs[0]:.2f}')
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    left.set_ylabel('precision')
    return figure


def _over_classes(curves: np.ndarray) -> np.ndarray:
    """Mean over the classes that have objects; NaN if none has."""
    known = curves[:, ~np.isnan(curves).any(0)]
    return known.mean(1) if known.size else np.full(len(curves), np.nan)


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
