"""Every metric that the package and the hosts report has its direction in one table."""
import numpy as np
import pytest
import torch
from segmentation_samples import cases, evaluate, predicted

from mmkcla.evaluation import BinarySegMetric
from mmkcla.evaluation.directions import direction, kind_of

LESS = {'failed_share', 'HD95_mean', 'HD95_pooled_mean', 'ASD_mean', 'ASSD_mean', 'ASSD_halves_mean', 'MAE_mean'}


def test_every_key_of_the_segmentation_metric():
    names = BinarySegMetric(hd95=True, distances=True, structure=True, boundary_f1=True, polyp_protocol=True).names
    assert len(names) > 35
    for name in names:
        expected = None if name == 'empty_truth' else 'less' if name in LESS else 'greater'
        assert direction(name) == expected, name
        assert direction(f'lesion/{name}') == expected


@pytest.mark.parametrize(('name', 'expected'), [
    ('coco/bbox_mAP', ('greater', 'fraction')), ('coco/segm_mAP_50', ('greater', 'fraction')),
    ('coco/bbox_mAP_s', ('greater', 'fraction')), ('coco/AR@100', ('greater', 'fraction')),
    ('coco/AR_s@1000', ('greater', 'fraction')), ('coco/disc_precision', ('greater', 'fraction')),
    ('coco/bbox_disc_precision', ('greater', 'fraction')), ('pascal_voc/mAP', ('greater', 'fraction')),
    ('accuracy/top1', ('greater', 'percent')), ('accuracy/top5_thr-0.50', ('greater', 'percent')),
    ('single-label/f1-score', ('greater', 'percent')), ('multi-label/mAP', ('greater', 'percent')),
    ('mIoU', ('greater', 'percent')), ('aAcc', ('greater', 'percent')), ('mDice', ('greater', 'percent')),
    ('EPE', ('less', 'pixels')), ('3px', ('less', 'fraction')), ('D1', ('less', 'fraction')),
    ('loss', ('less', '')), ('decode.loss_ce', ('less', '')), ('my_own_score', (None, '')), ('time', (None, ''))])
def test_metrics_of_the_hosts(name, expected):
    assert kind_of(name) == expected


def test_directions_agree_with_what_better_scores_are():
    """A perfect prediction is at least as good as a bad one in the stated direction, for every score of an image."""
    bad, good = cases(3, seed=1), cases(3, seed=1)
    perfect = [predicted((20. * sample.gt_sem_seg.data.float() - 10)[None].repeat(1, 2, 1, 1)
                         * torch.tensor([-1., 1.])[:, None, None], [sample])[0] for sample in good]
    options = dict(bootstrap=0, hd95=True, distances=True, structure=True, boundary_f1=True)
    low, high = (evaluate(samples, **options) for samples in (bad, perfect))
    for name, value in high.items():
        if (way := direction(name)) is not None:
            better = np.sign(value - low[name]) * (1 if way == 'greater' else -1)
            assert better >= 0, (name, value, low[name])
