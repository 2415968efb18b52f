"""COCO files whose values are of another type: whole numbers as decimals, text, bool, null; no iscrowd; no polygons."""
import json

import numpy as np
import pytest
from mmdet.evaluation.metrics import CocoMetric as HostMetric
from tiny import CLASSES, write_coco

from mmkcla.datasets.detection.coco.cache import cached_table
from mmkcla.datasets.detection.coco.faults import Use, find_faults
from mmkcla.datasets.detection.coco.table import read_table
from mmkcla.errors import UserError
from mmkcla.evaluation import CocoMetric
from mmkcla.plan.coco import load

FIELDS = [('images', 'id'), ('images', 'width'), ('images', 'height'), ('annotations', 'id'),
          ('annotations', 'image_id'), ('annotations', 'category_id'), ('annotations', 'iscrowd'),
          ('categories', 'id')]


@pytest.fixture
def root(tmp_path):
    return write_coco(tmp_path / 'data', images=6)


def edited(root, part, key, change):
    content = json.loads((root / 'ann.json').read_text())
    for one in content[part]:
        one[key] = change(one)
    (root / 'ann.json').write_text(json.dumps(content))
    return read_table(root / 'ann.json')


def scores(root):
    """Of the truth as predictions, with every third box of an image shifted; ids as the host's data set has them."""
    import torch
    from mmdet.datasets import CocoDataset
    from mmdet.structures.mask import encode_mask_results
    data = CocoDataset(ann_file=str(root / 'ann.json'), metainfo=dict(classes=CLASSES), data_prefix=dict(img=''))
    metric = CocoMetric(ann_file=str(root / 'ann.json'), metric=['bbox', 'segm'])
    metric.dataset_meta = dict(classes=CLASSES)
    samples = []
    for info in map(data.get_data_info, range(len(data))):
        boxes = torch.tensor([one['bbox'] for one in info['instances']], dtype=torch.float32)
        boxes[::3] += 4
        masks = np.zeros((len(boxes), 96, 96), bool)
        for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
            mask[top:bottom, left:right] = True
        samples.append(dict(img_id=info['img_id'], ori_shape=(96, 96), pred_instances=dict(
            bboxes=boxes, labels=torch.tensor([one['bbox_label'] for one in info['instances']]),
            scores=torch.linspace(1, .5, len(boxes)), masks=encode_mask_results(masks))))
    metric.process({}, samples)
    return metric.evaluate(len(samples))


@pytest.mark.parametrize(('part', 'key'), FIELDS)
def test_decimals_are_read_as_whole_numbers(root, part, key):
    right = scores(root)
    table = edited(root, part, key, lambda one: float(one[key]))
    number = {'images': 6, 'annotations': len(table.ids), 'categories': 2}[part]
    kind = f"entries of '{part}' whose {key} has a decimal point"
    assert [(fault.kind, fault.severity, fault.count) for fault in find_faults(table, Use(CLASSES, masks=True))] == [
        (kind, 'repaired', number)]
    assert right['coco/segm_mAP_50'] == 1 > right['coco/segm_mAP'] > 0.2 and scores(root) == right
    loaded = load(root / 'ann.json', [root / 'images'])
    assert all(type(one[key]) is int for one in loaded.content[part])
    assert [(problem.what, len(problem.places)) for problem in loaded.problems] == [(f'{kind} (repaired)', number)]


@pytest.mark.parametrize('change', [str, lambda value: None, lambda value: True], ids=['text', 'null', 'true'])
@pytest.mark.parametrize(('part', 'key'), FIELDS)
def test_other_types_are_refused_or_repaired(root, part, key, change, request):
    table = edited(root, part, key, lambda one: change(one[key]))
    severities = {fault.severity for fault in find_faults(table, Use(CLASSES, masks=True))}
    text_ids = key == 'id' and part == 'annotations' and 'text' in request.node.name  # CocoMetric renumbers them
    assert ('refused' in severities) != text_ids, severities
    if not text_ids:
        with pytest.raises(UserError):
            load(root / 'ann.json', [root / 'images'])


def test_a_missing_iscrowd_is_0(root):
    right = scores(root)
    content = json.loads((root / 'ann.json').read_text())
    for one in content['annotations']:
        del one['iscrowd']
    (root / 'ann.json').write_text(json.dumps(content))
    table = cached_table(root / 'ann.json', large=0)
    for again in (table, cached_table(root / 'ann.json', large=0)):
        fault, = find_faults(again, Use(CLASSES, masks=True))
        assert (fault.kind, fault.severity, fault.count) == ('annotations without iscrowd', 'repaired', len(table.ids))
    assert find_faults(table, Use(CLASSES, renumbered=False))[0].severity == 'refused'  # pycocotools needs it
    assert scores(root) == right
    loaded = load(root / 'ann.json', [root / 'images'])
    assert {one['iscrowd'] for one in loaded.content['annotations']} == {0}
    metric = HostMetric(ann_file=str(root / 'ann.json'))
    assert 'iscrowd' not in metric._coco_api.dataset['annotations'][0]


def short(table, **use):
    return [(fault.severity, fault.count) for fault in find_faults(table, Use(**use))
            if 'all have fewer than 3 points' in fault.kind]


@pytest.mark.parametrize('polygon', [
    lambda box: [box[0], box[1], box[0] + box[2], box[1] + box[3]], lambda box: box[:2], lambda box: [*box, 1, 2, 3]])
@pytest.mark.parametrize('trained', [True, False])
def test_polygons_that_are_none_are_no_masks(root, polygon, trained):
    table = edited(root, 'annotations', 'segmentation', lambda one: [polygon(one['bbox'])])
    assert short(table, masks=True, trained=trained) == [('refused', len(table.ids))]
    assert short(table, masks=None) == [('dropped', len(table.ids))]
    assert find_faults(table, Use()) == []
    some = edited(root, 'annotations', 'segmentation', lambda one: (
        [polygon(one['bbox'])] if one['id'] < 4 else [[1, 2, 9, 2, 9, 9]]))
    assert short(some, masks=True, trained=trained) == [('refused', 3)]
    fault = next(one for one in find_faults(table, Use(masks=None)) if 'fewer than 3' in one.kind)
    assert 'a segm metric reads 4 numbers as a box' in fault.remedy
