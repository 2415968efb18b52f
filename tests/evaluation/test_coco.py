"""The COCO metric gives the same numbers by both evaluators."""
import sys

import pytest
import torch
from coins_data import small_coins
from mmdet.structures.mask import encode_mask_results

from mmkcla.evaluation import CocoMetric
from mmkcla.evaluation.coco import evaluator_class


def predictions(coco, generator):
    """Shifted truth with random scores, and some false alarms."""
    for image in coco.dataset['images']:
        truth = [coco.anns[i] for i in coco.getAnnIds([image['id']], iscrowd=False)]
        boxes = torch.tensor([ann['bbox'] for ann in truth], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes += torch.randn(boxes.shape, generator=generator) * 3
        boxes = torch.cat([boxes, torch.tensor([[0., 0., 20., 20.]])])
        masks = [coco.annToMask(ann).astype(bool) for ann in truth]
        masks.append(torch.zeros(image['height'], image['width'], dtype=torch.bool).numpy())
        masks[-1][:20, :20] = True
        yield dict(img_id=image['id'], ori_shape=(image['height'], image['width']), pred_instances=dict(
            bboxes=boxes, labels=torch.zeros(len(boxes), dtype=torch.long),
            scores=torch.rand(len(boxes), generator=generator),
            masks=encode_mask_results(masks)))


def evaluate(ann_file):
    from pycocotools.coco import COCO
    metric = CocoMetric(ann_file=str(ann_file), metric=['bbox', 'segm'], classwise=True)
    metric.dataset_meta = dict(classes=('coin', ))
    samples = list(predictions(COCO(str(ann_file)), torch.Generator().manual_seed(0)))
    metric.process({}, samples)
    return metric.evaluate(len(samples))


def test_both_evaluators_agree(tmp_path, monkeypatch):
    pytest.importorskip('faster_coco_eval')
    small_coins(tmp_path / 'coins')
    ann_file = tmp_path / 'coins' / 'annotations' / 'instances_train2017.json'
    fast_class, fast = evaluator_class(), evaluate(ann_file)
    monkeypatch.setitem(sys.modules, 'faster_coco_eval', None)
    assert evaluator_class() is not fast_class
    slow = evaluate(ann_file)
    assert fast == pytest.approx(slow, abs=1e-3) and 0.3 < fast['coco/bbox_mAP'] < 1
    assert {'coco/bbox_mAP_50', 'coco/segm_mAP_50'} <= fast.keys()
