"""Every metric that the package and the hosts report has its direction in one table."""
import numpy as np
import pytest
import torch
from segmentation_samples import cases, evaluate, predicted

from mmkcla.errors import UserError
from mmkcla.evaluation import BinarySegMetric
from mmkcla.evaluation.directions import direction, kind_of, main_metric, rule_for

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


@pytest.mark.parametrize(('name', 'expected'), [
    ('HD95', 'less'), ('hd95', 'less'), ('my/asd', 'less'), ('MAE', 'less'), ('rmse', 'less'), ('val_error', 'less'),
    ('early_stopping_error', 'less'), ('abs_rel', 'less'), ('silog', 'less'), ('crowd_human/mMR', 'less'),
    ('epe', 'less'), ('d1', 'greater'), ('D1', 'less'), ('coco_panoptic/PQ', 'greater'), ('lvis/bbox_AP', 'greater'),
    ('my_dice', 'greater'), ('best_acc', 'greater'), ('cityscapes/mAP', 'greater'), ('crowd_human/JI', 'greater'),
    ('motchallenge-metric/MOTA', 'greater'), ('retrieval/Recall@1', 'greater'), ('retrieval/mAP@10', 'greater'),
    ('rank', None), ('score', None)])
def test_other_metrics(name, expected):
    assert direction(name) == expected


def test_rules():
    assert rule_for('HD95_mean', None, 'hook') == ('less', None)
    assert rule_for('DSC_pooled', 'greater', 'hook') == ('greater', None)
    assert rule_for('HD95_mean', 'greater', 'hook') == (
        'less', "hook.rule='greater' is replaced by 'less': smaller values of HD95_mean are better")
    assert rule_for('my_own_score', 'less', 'hook') == ('less', None)
    with pytest.raises(UserError, match="set hook.rule='greater' or hook.rule='less'"):
        rule_for('my_own_score', None, 'hook')
    with pytest.raises(UserError, match="hook.rule='more' must be 'greater' or 'less'"):
        rule_for('mIoU', 'more', 'hook')


@pytest.mark.parametrize(('names', 'expected'), [
    (['aAcc', 'mIoU', 'mAcc'], 'mIoU'), (['coco/bbox_mAP', 'coco/segm_mAP'], 'coco/bbox_mAP'),
    (['IoU_pooled', 'DSC_pooled'], 'DSC_pooled'), (['accuracy/top5', 'accuracy/top1'], 'accuracy/top1'),
    (['3px', 'EPE', 'D1'], 'EPE'), (['time', 'loss', 'my_dice'], 'my_dice'), (['time', 'score'], None), ([], None)])
def test_the_metric_of_auto(names, expected):
    assert main_metric(names) == expected
