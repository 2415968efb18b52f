"""Pixel counts of binary masks and the scores computed from them. Stateless, independent of any framework.

Counts are TP, FP, FN and TN of the foreground (label 1), in pixels. Scores, for one image or for pooled images:

    IoU  = TP / (TP + FP + FN)              DSC   = 2 TP / (2 TP + FP + FN)
    mIoU = (IoU + IoU of the background)/2  mDice = (DSC + DSC of the background)/2
    Sens = TP / (TP + FN)                   Spec  = TN / (TN + FP)
    Prec = TP / (TP + FP)                   Acc   = (TP + TN) / (TP + FP + FN + TN)

If a class is absent from both truth and prediction, its IoU and DSC are 1 (``empty='one'``) or undefined
(``empty='skip'``). If it is absent from only one of them, they are 0. Also undefined are Sens for a truth without
foreground, Spec for a truth without background, Prec for a prediction without foreground, and all scores of an image
without valid pixels. Undefined scores are NaN, and means exclude them.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError

SCORES = ('IoU', 'DSC', 'mIoU', 'mDice', 'Acc', 'Sens', 'Spec', 'Prec')
EMPTY_RULES = ('one', 'skip')
JACCARD_FLOOR = 0.65  # ISIC 2018: an image with a lower IoU counts as failed
_REMEDY = 'load it with mmkcla.LoadBinaryMask(threshold=127), or convert the data set with tools/dataset_converters'


class Counts(NamedTuple):
    """Pixel counts of an image, with the foreground as the positive class."""

    tp: int
    fp: int
    fn: int
    tn: int


def count_pixels(prediction: Tensor, foreground: Tensor, valid: Tensor) -> Counts:
    """Count the pixels of one image from three bool maps ``(H, W)``: prediction, truth and valid pixels."""
    tp, predicted, true, counted = torch.stack([
        mask.sum() for mask in (prediction & foreground & valid, prediction & valid, foreground & valid, valid)
    ]).tolist()
    return Counts(tp, predicted - tp, true - tp, counted - predicted - true + tp)


def valid_pixels(truth: Tensor, ignore_index: int | None = 255, name: str = 'truth') -> Tensor:
    """Return the valid pixels of a mask and check its values.

    Args:
        truth: ``(H, W)``, values 0, 1 and ``ignore_index``.
        ignore_index: value of ignored pixels; None: no pixel is ignored.
        name: name of the mask in error messages.

    Returns:
        ``(H, W)`` bool.

    Raises:
        UserError: for other values, and for an apparent 0/255 mask, whose foreground would be ignored.
    """
    foreground = truth == 1
    valid = torch.ones_like(foreground) if ignore_index is None else truth != ignore_index
    if bool((valid & ~foreground & (truth != 0)).any()):
        values = torch.unique(truth).tolist()
        shown = ', '.join(f'{value:g}' for value in values[:6]) + (', …' if len(values) > 6 else '')
        ignored = '' if ignore_index is None else f' and {ignore_index} (ignored)'
        raise UserError(f'the mask {name} has the values {shown}, expected 0, 1{ignored}; {_REMEDY}')
    if ignore_index == 255 and not bool(valid.all()) and not bool(foreground.any()):
        only = '0 and 255' if bool(valid.any()) else '255'
        raise UserError(f'the mask {name} has the values {only} and no 1: it looks like a 0/255 mask, and its '
                        f'foreground would be ignored; {_REMEDY} (if 255 really means ignored, use another value for '
                        'it and set ignore_index)')
    return valid


def scores_from_counts(counts: Any, empty: str = 'one') -> dict[str, np.ndarray]:
    """Compute the scores defined at the top of this module.

    Args:
        counts: ``(..., 4)`` TP, FP, FN, TN.
        empty: IoU and DSC of a class absent from both masks: ``'one'`` (1) or ``'skip'`` (NaN).

    Returns:
        for each name in :data:`SCORES` a float64 array ``(...)``, 0 to 1 or NaN.
    """
    absent = {'one': 1.0, 'skip': np.nan}[empty]
    tp, fp, fn, tn = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    errors = fp + fn
    iou, dice = _ratio(tp, tp + errors, absent), _ratio(2 * tp, 2 * tp + errors, absent)
    scores = dict(
        IoU=iou,
        DSC=dice,
        mIoU=(iou + _ratio(tn, tn + errors, absent)) / 2,
        mDice=(dice + _ratio(2 * tn, 2 * tn + errors, absent)) / 2,
        Acc=_ratio(tp + tn, tp + tn + errors),
        Sens=_ratio(tp, tp + fn),
        Spec=_ratio(tn, tn + fp),
        Prec=_ratio(tp, tp + fp))
    defined = tp + tn + errors > 0
    return {name: np.where(defined, value, np.nan) for name, value in scores.items()}


def thresholded_jaccard(iou: np.ndarray) -> np.ndarray:
    """ISIC 2018's score of an image: its IoU, or 0 if the IoU is below .65. NaN stays NaN."""
    return np.where(iou < JACCARD_FLOOR, 0.0, iou)


def summarise(counts: Any, empty: str = 'one') -> dict[str, float]:
    """Compute the scores of a set of images with both aggregations.

    Args:
        counts: ``(images, 4)`` TP, FP, FN, TN.
        empty: see :func:`scores_from_counts`.

    Returns:
        ``<score>_pooled`` (all pixels of the set as one image), ``<score>_mean`` (mean over the images with a defined
        score), ``TJ65_mean`` (:func:`thresholded_jaccard`), ``failed_share`` (share of images with IoU < .65) and
        ``empty_truth`` (number of images without foreground).
    """
    counts = np.asarray(counts, dtype=np.int64).reshape(-1, 4)
    pooled, single = scores_from_counts(counts.sum(0), empty), scores_from_counts(counts, empty)
    result = {f'{name}_pooled': float(pooled[name]) for name in SCORES}
    result |= {f'{name}_mean': mean(single[name]) for name in SCORES}
    iou = single['IoU']
    result['TJ65_mean'] = mean(thresholded_jaccard(iou))
    result['failed_share'] = mean(np.where(np.isnan(iou), np.nan, iou < JACCARD_FLOOR))
    result['empty_truth'] = int((counts[:, 0] + counts[:, 2] == 0).sum())
    return result


def mean(values: np.ndarray) -> float:
    """Mean of the values without NaN; NaN if there are none."""
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float('nan')


def binary_scores(prediction: Any, truth: Any, threshold: float = 0.5, ignore_index: int | None = 255,
                  empty: str = 'one') -> dict[str, float]:
    """Compute the counts and scores of one image.

    Args:
        prediction: ``(H, W)`` array or tensor: labels (bool, or integers 0 and 1), or foreground probabilities (float).
        truth: ``(H, W)``: 0, 1 and ``ignore_index``.
        threshold: probabilities above this value are foreground.
        ignore_index: value of ignored pixels in ``truth``; None: no pixel is ignored.
        empty: IoU and DSC of a class absent from both masks: ``'one'`` (1) or ``'skip'`` (NaN).

    Returns:
        ``TP``, ``FP``, ``FN``, ``TN`` in pixels and the scores in :data:`SCORES`, 0 to 1 or NaN.

    Raises:
        UserError: for different or non-2-D shapes, other values, or an unknown rule.

    Example:
        >>> binary_scores([[1, 1], [0, 0]], [[1, 0], [0, 0]])['IoU']
        0.5
    """
    check_rule(empty)
    prediction, truth = (torch.as_tensor(value) for value in (prediction, truth))
    truth = truth.to(prediction.device)
    if prediction.shape != truth.shape or prediction.ndim != 2:
        raise UserError(f'binary_scores needs a prediction and a truth with the same shape (H, W), got '
                        f'{tuple(prediction.shape)} and {tuple(truth.shape)}')
    labels = foreground_of(prediction, threshold)
    counts = count_pixels(labels, truth == 1, valid_pixels(truth, ignore_index))
    scores = scores_from_counts(counts, empty)
    return dict(zip(('TP', 'FP', 'FN', 'TN'), counts, strict=True)) | {
        name: float(value) for name, value in scores.items()}


def foreground_of(prediction: Tensor, threshold: float = 0.5, name: str = 'binary_scores') -> Tensor:
    """Return the predicted foreground of labels (bool, or integers 0 and 1) or probabilities (float), as bool.

    Args:
        prediction: any shape.
        threshold: probabilities above this value are foreground.
        name: name of the function in error messages.

    Raises:
        UserError: for other values.
    """
    if prediction.is_floating_point():
        if not bool(((prediction >= 0) & (prediction <= 1)).all()):
            raise UserError(f'{name} needs probabilities from 0 to 1, got {float(prediction.min()):.4g} to '
                            f'{float(prediction.max()):.4g}; pass logits.sigmoid(), or labels as integers')
        return prediction > threshold
    labels = prediction == 1
    if bool((~labels & (prediction != 0)).any()):
        raise UserError(f'{name} needs labels 0 and 1 (or probabilities as floats), got the values '
                        + ', '.join(map(str, torch.unique(prediction).tolist()[:6])))
    return labels


def check_rule(empty: str) -> None:
    """Raise UserError if the rule for empty masks is unknown."""
    if empty not in EMPTY_RULES:
        raise UserError(f'empty={empty!r} is unknown; choose one of: {", ".join(EMPTY_RULES)}')


def _ratio(part: np.ndarray, whole: np.ndarray, absent: float = np.nan) -> np.ndarray:
    return np.divide(part, whole, out=np.full(np.shape(whole), absent), where=whole > 0)
