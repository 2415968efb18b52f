"""Precision-recall curves and AP by size, against pycocotools' own arrays."""
import csv
import json

import numpy as np
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from tiny import CLASSES, write_coco

from mmkcla.evaluation import CocoMetric


def rows(path):
    with path.open(encoding='utf-8') as file:
        return list(csv.DictReader(file))


def test_equal_to_pycocotools(tmp_path):
    path = write_coco(tmp_path / 'data', 8) / 'ann.json'
    content, rng, found = json.loads(path.read_text()), np.random.default_rng(0), []
    metric = CocoMetric(ann_file=str(path), metric='bbox', out_dir=str(tmp_path / 'o'))
    metric.dataset_meta = dict(classes=CLASSES)
    for image in content['images']:
        true = [each for each in content['annotations'] if each['image_id'] == image['id']]
        boxes = np.array([each['bbox'] for each in true], np.float32)
        boxes[:, 2:] += boxes[:, :2]
        boxes += rng.uniform(-6, 6, boxes.shape).astype(np.float32)
        values, labels = rng.random(len(true)).astype(np.float32), [each['category_id'] - 1 for each in true]
        labels[0] = int(rng.integers(0, 2))
        metric.process({}, [dict(img_id=image['id'], ori_shape=(96, 96), pred_instances=dict(
            bboxes=torch.tensor(boxes), scores=torch.tensor(values), labels=torch.tensor(labels)))])
        found += [dict(image_id=image['id'], category_id=label + 1, score=float(value), bbox=[
            float(x) for x in (*box[:2], *(box[2:] - box[:2]))])
            for box, value, label in zip(boxes, values, labels, strict=True)]
    scores = metric.evaluate(8)
    truth = COCO(str(path))
    reference = COCOeval(truth, truth.loadRes(found), 'bbox')
    reference.evaluate()
    reference.accumulate()
    reference.summarize()
    precision = reference.eval['precision'][..., -1]
    assert 0 < reference.stats[0] < 1
    curves = rows(tmp_path / 'o' / 'precision_recall.bbox.csv')
    assert [row['class'] for row in curves] == [name for name in CLASSES for _ in range(101)]
    for index, limit in enumerate(np.arange(0.5, 1, 0.05)):
        values = np.array([float(row[f'IoU {limit:.2f}']) for row in curves]).reshape(2, 101)
        np.testing.assert_allclose(values, precision[index, :, :, 0].T, rtol=1e-5)
    sizes = rows(tmp_path / 'o' / 'ap_by_size.bbox.csv')
    for number, size in enumerate(('all', 'small', 'medium', 'large')):
        for label in range(2):
            part = precision[:, :, label, number]
            expected = f'{part[part > -1].mean():.6g}' if (part > -1).any() else ''
            assert sizes[label][f'AP {size}'] == expected
    assert float(sizes[2]['AP all']) == np.float64(f'{reference.stats[0]:.6g}')
    assert abs(scores['coco/bbox_mAP'] - reference.stats[0]) < 6e-4
    assert sizes[2]['AP large'] == '' and (tmp_path / 'o' / 'precision_recall.bbox.png').stat().st_size > 5000
