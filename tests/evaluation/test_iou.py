"""mmkcla.IoUMetric returns what mmseg's returns, and the scores of each class."""
import numpy as np
import pytest
import torch
from mmseg.evaluation.metrics import IoUMetric as HostMetric

from mmkcla.evaluation import IoUMetric

CLASSES = ('road', 'car', 'street light')


def samples(seed, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, (4, 1, 16, 16))
    found = np.where(rng.random(labels.shape) < 0.7, labels, rng.integers(0, classes, labels.shape))
    return [dict(gt_sem_seg=dict(data=torch.tensor(truth)), pred_sem_seg=dict(data=torch.tensor(guess)))
            for truth, guess in zip(labels, found, strict=True)], labels, found


def scores(kind, batch, **options):
    metric = kind(**options)
    metric.dataset_meta = dict(classes=CLASSES)
    metric.process({}, batch)
    return metric.evaluate(len(batch))


@pytest.mark.parametrize('options', [dict(), dict(iou_metrics=['mIoU', 'mDice']), dict(iou_metrics=['mFscore'])])
def test_equal_to_mmseg_with_the_classes_besides(options):
    batch, labels, found = samples(0)
    ours, host = scores(IoUMetric, batch, **options), scores(HostMetric, batch, **options)
    assert {name: ours[name] for name in host} == host
    extra = ours.keys() - host.keys()
    assert {name.partition('.')[2] for name in extra} == set(CLASSES)
    for number, label in enumerate(CLASSES):
        both, either = ((labels == number) & (found == number)).sum(), ((labels == number) | (found == number)).sum()
        if f'IoU.{label}' in ours:
            assert ours[f'IoU.{label}'] == round(100 * both / either, 2)
    for name in {name.partition('.')[0] for name in extra}:
        mean = np.mean([ours[f'{name}.{label}'] for label in CLASSES])
        assert ours[f'm{name}'] == pytest.approx(mean, abs=0.011)


def test_an_absent_class_is_nan():
    batch, _, _ = samples(1, classes=2)
    assert np.isnan(scores(IoUMetric, batch)['IoU.street light'])
