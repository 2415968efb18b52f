"""Scores of each class of a classification, against scikit-learn."""
import math

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from sklearn.metrics import precision_recall_fscore_support

from mmkcla.evaluation.class_scores import ClassScores
from mmkcla.evaluation.directions import kind_of
from mmkcla.evaluation.names import is_class_score, metric_names


def scores(labels, predicted, classes=None, number=4):
    metric = ClassScores()
    metric.dataset_meta = dict(classes=classes) if classes else None
    metric.process(None, [DataSample().set_gt_label(int(label)).set_pred_score(torch.eye(number)[guess]).to_dict()
                          for label, guess in zip(labels, predicted, strict=True)])
    return metric, metric.evaluate(len(labels))


def test_equal_to_scikit_learn():
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 4, (2, 50))
    names = ('a', 'b b', 'c.d', 'e/f')
    metric, found = scores(labels, predicted, names)
    expected = precision_recall_fscore_support(labels, predicted, labels=range(4))
    for item, values, factor in zip(metric.items, expected, (100, 100, 100, 1), strict=True):
        for name, value in zip(names, values, strict=True):
            assert found[f'single-label/{item}.{name}'] == pytest.approx(factor * value, abs=1e-3)
    assert set(found) == set(metric_names(metric, names)) and len(found) == 16
    assert all(map(is_class_score, found))
    assert {kind_of(name) for name in found if 'support' not in name} == {kind_of('single-label/precision')}


def test_undefined_scores():
    _, found = scores([0, 0, 1, 1], [0, 2, 0, 0])
    assert found['single-label/precision.0'] == pytest.approx(100 / 3, abs=1e-3)
    assert found['single-label/recall.1'] == found['single-label/f1-score.1'] == 0  # never predicted, but wanted
    undefined = {name.removeprefix('single-label/') for name, value in found.items() if math.isnan(value)}
    assert undefined == {'precision.1', 'recall.2', 'precision.3', 'recall.3', 'f1-score.3'}
    assert [found[f'single-label/support.{label}'] for label in range(4)] == [2, 2, 0, 0]


def test_which_metrics_are_of_a_class():
    for name in ('mIoU', 'coco/bbox_mAP', 'single-label/precision', 'accuracy/top1', 'IoU_mean', 'Acc_pooled'):
        assert not is_class_score(name)
    for name in ('IoU.road', 'val/Dice.a', 'coco/car_precision', 'coco/bbox_big car_precision', 'IoU.a/b'):
        assert is_class_score(name)
