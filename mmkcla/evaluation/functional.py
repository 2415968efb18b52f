"""One function for each score of binary segmentation, on arrays or tensors, as in ``torchmetrics.functional``.

Every function takes a prediction and a target of the same shape: ``(H, W)`` for one image, which returns a float, or
``(N, H, W)`` for N images, which returns a float64 array ``(N,)``. :class:`~mmkcla.evaluation.BinarySegMetric` calls
the same code.

* **prediction**: labels (bool, or integers 0 and 1) or foreground probabilities (floats from 0 to 1), which are cut at
  ``threshold``. The scores of probability maps (:func:`mean_absolute_error` and the measures after it) use them uncut
  and unscaled; the metric scales each map to 0…1 first, as the papers' scripts do
  (:func:`~mmkcla.evaluation.segmentation.structure.stretched`).
* **target**: 0, 1 (foreground) and ``ignore_index``. Ignored pixels do not count; for outlines and probability maps,
  they count as background in both masks.
* **empty**: the rule for a class that is absent from both masks: ``'one'`` (the best score) or ``'skip'`` (NaN).

Averaging is left to the caller: ``np.nanmean(dice(prediction, target))`` is ``DSC_mean`` of the metric, and
``dice(prediction.reshape(1, -1), target.reshape(1, -1))`` is ``DSC_pooled``.

Raises:
    UserError: from every function, for different or other shapes, for values outside the range, or an unknown rule.

Example:
    >>> dice([[1, 1], [0, 0]], [[1, 0], [0, 0]]), hausdorff_95([[1, 0, 0]], [[0, 0, 1]])
    (0.6666666666666666, 2.0)
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from .segmentation import structure
from .segmentation.counts import (
    check_rule,
    count_pixels,
    foreground_of,
    scores_from_counts,
    thresholded_jaccard,
    valid_pixels,
)
from .segmentation.polyp_protocol import threshold_curves
from .segmentation.surface import boundary_scores, distance_scores

Score = float | np.ndarray

__all__ = ['accuracy', 'adaptive_e_measure', 'average_surface_distance', 'average_symmetric_surface_distance',
           'average_symmetric_surface_distance_halves', 'boundary_f1', 'dice', 'dice_256', 'e_measure', 'hausdorff_95',
           'hausdorff_95_pooled', 'iou', 'iou_256', 'iou_65', 'max_e_measure', 'mean_absolute_error', 'mean_dice',
           'mean_iou', 'precision', 'recall', 's_measure', 'specificity', 'weighted_f_measure']


def dice(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
         empty: str = 'one') -> Score:
    """Dice coefficient (``DSC``): ``2 TP / (2 TP + FP + FN)``. Two empty masks: ``empty``; one empty mask: 0."""
    return _counted('DSC', prediction, target, threshold, ignore_index, empty)


def iou(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
        empty: str = 'one') -> Score:
    """Intersection over union (``IoU``): ``TP / (TP + FP + FN)``. Two empty masks: ``empty``; one empty mask: 0."""
    return _counted('IoU', prediction, target, threshold, ignore_index, empty)


def iou_65(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
           empty: str = 'one') -> Score:
    """Thresholded Jaccard index of ISIC 2018 (``TJ65``): :func:`iou`, or 0 if it is below 0.65."""
    value = thresholded_jaccard(np.asarray(iou(prediction, target, threshold, ignore_index, empty)))
    return value if value.ndim else float(value)


def mean_dice(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
              empty: str = 'one') -> Score:
    """Mean of the Dice coefficients of foreground and background (``mDice``)."""
    return _counted('mDice', prediction, target, threshold, ignore_index, empty)


def mean_iou(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
             empty: str = 'one') -> Score:
    """Mean of the IoU of foreground and background (``mIoU``)."""
    return _counted('mIoU', prediction, target, threshold, ignore_index, empty)


def precision(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255) -> Score:
    """Precision (``Prec``): ``TP / (TP + FP)``; NaN if no foreground is predicted."""
    return _counted('Prec', prediction, target, threshold, ignore_index)


def recall(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255) -> Score:
    """Recall, or sensitivity (``Sens``): ``TP / (TP + FN)``; NaN for a target without foreground."""
    return _counted('Sens', prediction, target, threshold, ignore_index)


def specificity(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255) -> Score:
    """Specificity (``Spec``): ``TN / (TN + FP)``; NaN for a target without background."""
    return _counted('Spec', prediction, target, threshold, ignore_index)


def accuracy(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255) -> Score:
    """Accuracy (``Acc``): share of pixels with the right label; NaN for an image without valid pixels."""
    return _counted('Acc', prediction, target, threshold, ignore_index)


def hausdorff_95(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
                 empty: str = 'one') -> Score:
    """``HD95``: the larger of the 95th percentiles of the outline distances of both directions, in pixels (MONAI).

    Lower is better. Two empty masks: 0 (``empty='one'``) or NaN; one empty mask: the image diagonal √(H² + W²). This
    rule applies to all distances. See :func:`hausdorff_95_pooled` for the other convention.
    """
    return _distance('HD95', prediction, target, threshold, ignore_index, empty)


def hausdorff_95_pooled(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
                        empty: str = 'one') -> Score:
    """``HD95_pooled``: 95th percentile of the outline distances of both directions together, in pixels (medpy)."""
    return _distance('HD95_pooled', prediction, target, threshold, ignore_index, empty)


def average_surface_distance(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
                             empty: str = 'one') -> Score:
    """``ASD``: mean distance from the predicted outline to the true one, in pixels; lower is better."""
    return _distance('ASD', prediction, target, threshold, ignore_index, empty)


def average_symmetric_surface_distance(prediction: Any, target: Any, threshold: float = 0.5,
                                       ignore_index: int | None = 255, empty: str = 'one') -> Score:
    """``ASSD``: mean of the distances of both directions together, in pixels (MONAI with ``symmetric=True``, medpy
    0.5.2)."""
    return _distance('ASSD', prediction, target, threshold, ignore_index, empty)


def average_symmetric_surface_distance_halves(prediction: Any, target: Any, threshold: float = 0.5,
                                              ignore_index: int | None = 255, empty: str = 'one') -> Score:
    """``ASSD_halves``: mean of the mean distances of the two directions, in pixels, so that both count equally."""
    return _distance('ASSD_halves', prediction, target, threshold, ignore_index, empty)


def boundary_f1(prediction: Any, target: Any, threshold: float = 0.5, ignore_index: int | None = 255,
                empty: str = 'one', tolerance: float = 2.0) -> Score:
    """Boundary F1 (``BF1``): F1 score of the outline pixels within ``tolerance`` pixels of the other outline.

    Two empty masks: ``empty``; one empty mask: 0.
    """
    check_rule(empty)

    def score(labels: Tensor, foreground: Tensor, valid: Tensor) -> float:
        return boundary_scores(*_arrays(labels & valid, foreground), tolerance, empty)['BF1']
    return _of_masks(score, prediction, target, threshold, ignore_index, 'boundary_f1')


def mean_absolute_error(prediction: Any, target: Any, ignore_index: int | None = 255) -> Score:
    """``MAE``: mean absolute difference of probability and mask; lower is better. Defined for empty masks."""
    return _of_maps(structure.mean_absolute_error, prediction, target, ignore_index)


def s_measure(prediction: Any, target: Any, ignore_index: int | None = 255, alpha: float = 0.5) -> Score:
    """S-measure (``Smeasure``), with the weight ``alpha`` of the object part.

    A target without foreground (background): 1 − mean (mean) of the probabilities.
    """
    return _of_maps(lambda scores, mask: structure.s_measure(scores, mask, alpha), prediction, target, ignore_index)


def e_measure(prediction: Any, target: Any, ignore_index: int | None = 255) -> Score:
    """Mean E-measure (``Emeasure``): mean over 256 thresholds.

    A target without foreground (background): the share of pixels predicted as background (foreground).
    """
    return _of_maps(lambda scores, mask: float(structure.e_measure(scores, mask)[0].mean()), prediction, target,
                    ignore_index)


def max_e_measure(prediction: Any, target: Any, ignore_index: int | None = 255) -> Score:
    """E-measure at the best of 256 thresholds for each image. ``maxEmeasure`` of the metric uses the best threshold of
    the whole set instead, and is at most the mean of this score."""
    return _of_maps(lambda scores, mask: float(structure.e_measure(scores, mask)[0].max()), prediction, target,
                    ignore_index)


def adaptive_e_measure(prediction: Any, target: Any, ignore_index: int | None = 255) -> Score:
    """E-measure at a threshold of twice the mean of the map (``adpEmeasure``)."""
    return _of_maps(lambda scores, mask: structure.e_measure(scores, mask)[1], prediction, target, ignore_index)


def weighted_f_measure(prediction: Any, target: Any, ignore_index: int | None = 255,
                       beta_squared: float = 1.) -> Score:
    """Weighted F-measure (``wFmeasure``), with the weight ``beta_squared`` of recall. 0 for a target without
    foreground."""
    return _of_maps(lambda scores, mask: structure.weighted_f_measure(scores, mask, beta_squared), prediction, target,
                    ignore_index)


def dice_256(prediction: Any, target: Any, ignore_index: int | None = 255) -> Score:
    """Dice of the polyp papers (``Dice_256``): mean over 256 thresholds of the map scaled to 0…1.

    As in those papers' code, it is 0 for a target without foreground. Its mean over images is ``mDice_256``.
    """
    return _of_curves(0, prediction, target, ignore_index)


def iou_256(prediction: Any, target: Any, ignore_index: int | None = 255) -> Score:
    """IoU of the polyp papers (``IoU_256``); see :func:`dice_256`. Its mean over images is ``mIoU_256``."""
    return _of_curves(1, prediction, target, ignore_index)


def _counted(name: str, prediction: Any, target: Any, threshold: float, ignore_index: int | None,
             empty: str = 'one') -> Score:
    check_rule(empty)

    def score(labels: Tensor, foreground: Tensor, valid: Tensor) -> float:
        return float(scores_from_counts(count_pixels(labels, foreground, valid), empty)[name])
    return _of_masks(score, prediction, target, threshold, ignore_index, name)


def _distance(name: str, prediction: Any, target: Any, threshold: float, ignore_index: int | None,
              empty: str) -> Score:
    check_rule(empty)

    def score(labels: Tensor, foreground: Tensor, valid: Tensor) -> float:
        return distance_scores(*_arrays(labels & valid, foreground), empty)[name]
    return _of_masks(score, prediction, target, threshold, ignore_index, name)


def _of_masks(score: Callable[[Tensor, Tensor, Tensor], float], prediction: Any, target: Any, threshold: float,
              ignore_index: int | None, name: str) -> Score:
    """Apply ``score`` to the labels, the foreground and the valid pixels of each image. No valid pixel: NaN."""
    prediction, target = _pair(prediction, target)
    labels = foreground_of(prediction, threshold, name)
    valid = valid_pixels(target, ignore_index)
    return _each(lambda one: score(labels[one], target[one] == 1, valid[one]) if bool(valid[one].any()) else np.nan,
                 target)


def _of_maps(score: Callable[[np.ndarray, np.ndarray], float], prediction: Any, target: Any,
             ignore_index: int | None) -> Score:
    """Apply ``score`` to the probabilities and the foreground of each image. No valid pixel: NaN."""
    prediction, target = _pair(prediction, target)
    valid = valid_pixels(target, ignore_index)
    scores = prediction.double()
    return _each(lambda one: score(*_arrays(scores[one] * valid[one], target[one] == 1))
                 if bool(valid[one].any()) else np.nan, target)


def _of_curves(which: int, prediction: Any, target: Any, ignore_index: int | None) -> Score:
    prediction, target = _pair(prediction, target)
    valid = valid_pixels(target, ignore_index)
    labels = foreground_of(prediction, name=('Dice_256', 'IoU_256')[which])  # also checks the values
    scores = prediction if prediction.is_floating_point() else labels.float()
    return _each(lambda one: float(threshold_curves(scores[one], target[one] == 1, valid[one])[which].mean())
                 if bool(valid[one].any()) else np.nan, target)


def _each(score: Callable[[Any], float], target: Tensor) -> Score:
    """Return the score of the only image, or those of all images."""
    return float(score(...)) if target.ndim == 2 else np.array([score(one) for one in range(len(target))], float)


def _pair(prediction: Any, target: Any) -> tuple[Tensor, Tensor]:
    prediction, target = (each if isinstance(each, Tensor) else torch.as_tensor(np.asarray(each))
                          for each in (prediction, target))  # NumPy reads lists of floats as float64, torch as float32
    if prediction.shape != target.shape or prediction.ndim not in (2, 3):
        raise UserError(f'prediction and target need the same shape, (H, W) or (N, H, W), got '
                        f'{tuple(prediction.shape)} and {tuple(target.shape)}')
    return prediction, target.to(prediction.device)


def _arrays(*maps: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(each.detach().cpu().numpy() for each in maps)
