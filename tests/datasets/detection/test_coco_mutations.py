"""Mutations of a valid COCO file: each is refused in one line, reported, or scores as the clean file does."""
import json
import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tiny import CLASSES, write_coco

from mmkcla.datasets.detection.coco.faults import Use, find_faults
from mmkcla.datasets.detection.coco.table import read_table
from mmkcla.errors import UserError
from mmkcla.evaluation import CocoMetric

VALUES = [None, True, '', '7', 'x', 0, 1, -1, 0.5, 2**53, 2**63, 2**64, 10**400, math.nan, math.inf, [], {}, [1], [[1]],
          [0, 0, 0, 0], [1, 1, 9, 9], [0.1, 0.2, 0.3, 0.4], [[1, 2, 3, 4, 5, 6]], [['a']],
          dict(size=[96, 96], counts='x'), dict(size=[96, 96], counts=[96 * 96]), dict(size=[1, 1], counts=[-1, 2])]
CHANGES = [lambda value, new: new, lambda value, new: -value, lambda value, new: value * 1000,
           lambda value, new: value / 1000, lambda value, new: [value], lambda value, new: str(value),
           lambda value, new: value[::-1], lambda value, new: [value[i] for i in (1, 0, 3, 2)],
           lambda value, new: [one + 40 for one in value], lambda value, new: value + value]
KEYS = [(part, key) for part, keys in {
    'annotations': ('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation'),
    'images': ('id', 'width', 'height'), 'categories': ('id',)}.items() for key in keys]


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp('coco') / 'data', images=6)


def score(path, clean):
    """AP of the objects of the clean file, as predictions."""
    metric = CocoMetric(ann_file=str(path), metric='bbox')
    metric.dataset_meta = dict(classes=CLASSES)
    ids = [one['id'] for one in json.loads(path.read_text())['images']]
    samples = []
    for image, identity in zip(clean['images'], ids, strict=True):
        objects = [one for one in clean['annotations'] if one['image_id'] == image['id']]
        boxes = torch.tensor([one['bbox'] for one in objects], dtype=torch.float32)
        boxes[:, 2:] += boxes[:, :2]
        samples.append(dict(img_id=identity, ori_shape=(96, 96), pred_instances=dict(
            bboxes=boxes, scores=torch.ones(len(boxes)),
            labels=torch.tensor([one['category_id'] - 1 for one in objects]))))
    metric.process({}, samples)
    return metric.evaluate(len(samples))


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(KEYS), change=st.sampled_from(CHANGES), new=st.sampled_from(VALUES),
       which=st.sampled_from(['first', 'class', 'all']))
def test_no_mutation_is_silent(root, place, change, new, which):
    clean = json.loads((root / 'ann.json').read_text())
    content = json.loads((root / 'ann.json').read_text())
    (part, key), path = place, root / 'changed.json'
    chosen = content[part][:1] if which == 'first' else [
        one for one in content[part] if which == 'all' or one.get('category_id', 1) == 1]
    for one in chosen:
        try:
            one[key] = change(one[key], new)
        except (TypeError, IndexError, OverflowError):
            one[key] = new
        # another image or class of the file is a label that no check can know to be wrong
        assume(key not in ('image_id', 'category_id') or one[key] not in (1, 2, 3, 4, 5, 6))
    path.write_text(json.dumps(content))
    try:
        faults = find_faults(read_table(path), Use(CLASSES, trained=False, masks=None))
    except UserError as error:
        assert '\n' not in str(error)
        return
    if not faults:
        expected = score(root / 'ann.json', clean)
        found = score(path, clean)
        assert found == pytest.approx(expected, nan_ok=True), (place, which)
