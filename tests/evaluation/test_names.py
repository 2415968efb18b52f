"""The keys that are known before an evaluation are those that the evaluation returns."""
import json

import numpy as np
import pytest
import torch
from mmdet.evaluation import CocoMetric as HostCoco
from mmdet.evaluation import VOCMetric
from mmengine.config import Config
from mmpretrain.evaluation import Accuracy, AveragePrecision, MultiLabelMetric, SingleLabelMetric
from mmpretrain.structures import DataSample
from mmseg.evaluation import IoUMetric as HostIoU

from mmkcla.errors import UserError
from mmkcla.evaluation import CocoMetric, IoUMetric, PerImageAccuracy
from mmkcla.evaluation.names import metric_names, nearest_name
from mmkcla.runtime.config import check_evaluators
from mmkcla.stereo.metric import StereoMetric

CLASSES = ('a', 'b b')


@pytest.mark.parametrize('metric', [
    Accuracy(topk=(1, 2)), Accuracy(topk=1, thrs=None), Accuracy(topk=(1,), thrs=(0.1, None), prefix='x'),
    SingleLabelMetric(), SingleLabelMetric(average='micro', items=('recall', 'support')),
    SingleLabelMetric(average=None), SingleLabelMetric(thrs=(0.2, 0.5))], ids=lambda metric: str(vars(metric)))
def test_classification(metric):
    batch = [DataSample().set_gt_label(n % 2).set_pred_score(torch.tensor([.4, .6])).to_dict() for n in range(4)]
    metric.process(None, batch)
    assert set(metric_names(metric)) == set(metric.evaluate(4))


@pytest.mark.parametrize('average', ['macro', None])
def test_average_precision(average):
    metric = AveragePrecision(average=average)
    samples = [DataSample().set_gt_score(torch.eye(2)[n % 2]).set_pred_score(torch.tensor([.4, .6])) for n in range(4)]
    metric.process(None, [sample.to_dict() for sample in samples])
    assert set(metric_names(metric)) == set(metric.evaluate(4))


@pytest.mark.parametrize('kind', [HostIoU, IoUMetric])
@pytest.mark.parametrize('metrics', [['mIoU'], ['mIoU', 'mDice', 'mFscore'], ['mFscore']], ids=str)
def test_segmentation(kind, metrics):
    metric = kind(iou_metrics=metrics, prefix='val')
    metric.dataset_meta = dict(classes=CLASSES)
    labels = torch.arange(16).reshape(1, 4, 4) % 2
    metric.process(None, [dict(gt_sem_seg=dict(data=labels), pred_sem_seg=dict(data=labels))])
    assert set(metric_names(metric, CLASSES)) == set(metric.evaluate(1))


@pytest.mark.parametrize('kind', [HostCoco, CocoMetric])
@pytest.mark.parametrize('options', [dict(), dict(metric='proposal_fast'), dict(metric='proposal'),
                                     dict(classwise=True), dict(metric_items=['mAP_50'])], ids=str)
def test_detection(tmp_path, kind, options):
    path = tmp_path / 'ann.json'
    path.write_text(json.dumps(dict(
        images=[dict(id=1, width=9, height=9, file_name='1.jpg')],
        categories=[dict(id=n + 1, name=name) for n, name in enumerate(CLASSES)],
        annotations=[dict(id=1, image_id=1, category_id=1, bbox=[1, 1, 5, 5], area=25, iscrowd=0)])))
    metric = kind(ann_file=str(path), **options)
    metric.dataset_meta = dict(classes=CLASSES)
    found = dict(bboxes=torch.tensor([[1., 1, 6, 6]]), scores=torch.tensor([.9]), labels=torch.tensor([0]))
    metric.process(None, [dict(img_id=1, ori_shape=(9, 9), pred_instances=found)])
    assert set(metric_names(metric, CLASSES)) == set(metric.evaluate(1))


def test_pascal_voc():
    metric = VOCMetric(iou_thrs=[.5, .75])
    metric.dataset_meta = dict(classes=CLASSES)
    box = torch.tensor([[1., 1, 6, 6]])
    metric.process(None, [dict(
        gt_instances=dict(bboxes=box, labels=torch.tensor([0])), ignored_instances=dict(
            bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.int64)),
        pred_instances=dict(bboxes=box, labels=torch.tensor([0]), scores=torch.tensor([.9])))])
    assert set(metric_names(metric)) == set(metric.evaluate(1))


def test_none_and_unknown(tmp_path):
    assert metric_names(PerImageAccuracy(str(tmp_path))) == []
    assert metric_names(HostIoU(format_only=True, output_dir=str(tmp_path))) == []
    assert metric_names(MultiLabelMetric()) is None
    assert metric_names(HostIoU(iou_metrics=['mine'])) is None
    assert metric_names(CocoMetric(classwise=True)) is None
    assert 'coco/a_precision' in metric_names(CocoMetric(classwise=True), CLASSES)


def test_stereo():
    metric = StereoMetric(prefix='s')
    metric.process(None, [dict(pred_disparity=dict(data=torch.ones(1, 2, 2)),
                               gt_disparity=dict(data=torch.ones(1, 2, 2)))])
    assert metric_names(metric) == list(metric.evaluate(1))
    assert np.all([name.startswith('s/') for name in metric_names(metric)])


@pytest.mark.parametrize(('wanted', 'near'), [
    ('accuracy', 'accuracy/top1'), ('top1', 'accuracy/top1'), ('accuracy/top2', 'accuracy/top1'), ('miou', 'mIoU'),
    ('hd95', 'HD95_mean'), ('bbox_mAP', 'coco/bbox_mAP'), ('DSC', 'DSC_pooled'), ('DSC_poold', 'DSC_pooled')])
def test_nearest(wanted, near):
    names = ['accuracy/top1', 'mIoU', 'HD95_mean', 'DSC_pooled', 'DSC_mean', 'coco/bbox_mAP', 'coco/bbox_mAP_50']
    assert nearest_name(wanted, names) == f' (did you mean {near!r}?)'
    assert nearest_name('loss', names) == nearest_name('loss', []) == ''


@pytest.mark.parametrize(('scope', 'evaluator', 'wanted', 'line'), [
    ('mmseg', dict(type='IoUMetric'), 'DSC_pooled', 'available: aAcc, mIoU, mAcc'),
    ('mmseg', dict(type='IoUMetric', iou_metrics=['mDice']), 'loss', 'available: aAcc, mDice, mAcc'),
    ('mmseg', dict(type='mmkcla.BinarySegMetric'), 'mIoU', "did you mean 'mIoU_pooled'?"),
    ('mmseg', dict(type='mmkcla.BinarySegMetric'), 'HD95_mean', 'available: '),
    ('mmpretrain', dict(type='Accuracy', topk=(1,)), 'top5', 'available: accuracy/top1'),
    ('mmpretrain', [dict(type='Accuracy'), dict(type='SingleLabelMetric')], 'f1-score',
     "did you mean 'single-label/f1-score'?"),
    ('mmdet', dict(type='CocoMetric'), 'mAP', "did you mean 'coco/bbox_mAP'?"),
    ('mmdet', dict(type='CocoMetric'), 'coco/segm_mAP', "did you mean 'coco/bbox_mAP'?")])
def test_save_best_is_refused_before_the_training(scope, evaluator, wanted, line):
    def config(name):
        return Config(dict(default_scope=scope, val_evaluator=evaluator, val_dataloader=dict(dataset=dict(
            type=dict(mmseg='BaseSegDataset', mmpretrain='CustomDataset', mmdet='CocoDataset')[scope])),
            default_hooks=dict(checkpoint=dict(type='CheckpointHook', save_best=name))))

    with pytest.raises(UserError) as caught:
        check_evaluators(config(wanted), ('val',))
    assert str(caught.value).startswith(f'default_hooks.checkpoint.save_best={wanted!r} is not a validation metric')
    assert line in str(caught.value)
    good = dict(mmseg='aAcc', mmpretrain='accuracy/top1', mmdet='coco/bbox_mAP_50')[scope]
    check_evaluators(config('DSC_pooled' if 'Binary' in str(evaluator) else good), ('val',))
    check_evaluators(config('auto'), ('val',))
    plateau = config('auto')
    plateau.param_scheduler = [dict(type='ReduceOnPlateauLR')]
    with pytest.raises(UserError, match=r"param_scheduler\[0\].monitor='loss' is not a validation metric"):
        check_evaluators(plateau, ('val',))
