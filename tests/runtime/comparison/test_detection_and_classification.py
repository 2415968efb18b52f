"""Comparisons of detectors by AP over resampled images, and of classifiers by their answers, from real metrics."""
import csv
import json

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.evaluator import Evaluator
from mmpretrain.structures import DataSample
from tiny import CLASSES, write_coco

from mmkcla.errors import UserError
from mmkcla.evaluation import CocoMetric, PerImageAccuracy
from mmkcla.runtime.comparison import Candidate, compare
from mmkcla.runtime.comparison.detections import Detections, ap_score
from mmkcla.runtime.comparison.report import sentence
from mmkcla.runtime.per_image import keep_per_image, record_detections


class FakeRunner:
    def __init__(self, metric):
        self.test_evaluator = Evaluator([metric])


def detect(root, annotations, shift, seed=0, **options):
    """Test a detector whose boxes are the true ones, moved by up to ``shift`` pixels, in ``root``."""
    config = ConfigDict(test_evaluator=dict(type='mmkcla.CocoMetric', ann_file=str(annotations), metric=['bbox'],
                                            **options))
    kept = keep_per_image(config, root)
    metric = CocoMetric(**{key: value for key, value in config.test_evaluator[0].items() if key != 'type'})
    metric.dataset_meta = dict(classes=CLASSES)
    content, rng = json.loads(annotations.read_text()), np.random.default_rng(seed)
    for image in content['images']:
        true = [each for each in content['annotations'] if each['image_id'] == image['id']]
        boxes = np.array([[*each['bbox'][:2], *np.add(each['bbox'][:2], each['bbox'][2:])] for each in true], float)
        boxes += rng.uniform(-shift, shift, boxes.shape)
        metric.process({}, [dict(
            img_id=image['id'], ori_shape=(96, 96),
            pred_instances=dict(bboxes=torch.tensor(boxes), scores=torch.tensor(rng.random(len(true))),
                                labels=torch.tensor([each['category_id'] - 1 for each in true])))])
    scores = metric.evaluate(len(content['images']))
    record_detections(FakeRunner(metric), root, kept)
    return scores


@pytest.fixture(scope='module')
def annotations(tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp('coco') / 'data', 12) / 'ann.json'


def detector(root, annotations, name, shift, **options):
    folder = root / name / 'seed_0'
    return Candidate(name, {0: folder}, {0: detect(folder, annotations, shift, **options)}, dict(type='CocoMetric'), {})


def test_ap_of_the_images_is_that_of_the_test(annotations, tmp_path):
    near, far = detector(tmp_path, annotations, 'near', 2), detector(tmp_path, annotations, 'far', 14)
    for metric in ('coco/bbox_mAP', 'coco/bbox_mAP_50', 'coco/bbox_mAP_75'):
        score, images, size = ap_score(metric, [near.detections(0)], [far.detections(0)])
        assert (images, size) == (12, 24)
        for each, codes in ((near, np.arange(12)), (far, np.arange(12, 24))):
            assert score(codes) == pytest.approx(each.metrics[0][metric], abs=6e-4)
            assert score(np.tile(codes, 2)) == pytest.approx(score(codes), abs=1e-2)  # the same images twice
    found = {each.metric: each for each in compare([near, far]) if each.over == 'images'}
    assert near.metrics[0]['coco/bbox_mAP_l'] == -1  # no such objects: not a score
    assert set(found) == {'coco/bbox_mAP', 'coco/bbox_mAP_s', 'coco/bbox_mAP_m'}
    assert found['coco/bbox_mAP_m'].reason == 'of the COCO metrics, only AP, AP50 and AP75 are tested over images'
    shown = found['coco/bbox_mAP']
    assert shown.verdict == 'shown' and shown.result.test == 'paired randomization'
    assert shown.result.low < near.metrics[0]['coco/bbox_mAP'] - far.metrics[0]['coco/bbox_mAP'] < shown.result.high
    assert sentence(shown).startswith('coco/bbox_mAP: near is higher (better) than far by ')
    assert compare([near, far], metrics=['coco/bbox_mAP_50'])[0].metric == 'coco/bbox_mAP_50'


def test_the_same_detections(annotations, tmp_path):
    same = [detector(tmp_path, annotations, name, 8) for name in ('a', 'b')]
    found = next(each for each in compare(same) if each.over == 'images')
    assert (found.result.difference, found.result.p, found.verdict) == (0, 1, 'not shown')


def test_other_or_changed_annotations_and_damage(annotations, tmp_path):
    one = detector(tmp_path, annotations, 'one', 4)
    moved = write_coco(tmp_path / 'other', 12, seed=1) / 'ann.json'
    other = detector(tmp_path, moved, 'other', 4)
    assert {each.reason for each in compare([one, other])} == {'the annotations of the test sets differ'}
    moved.write_text(moved.read_text() + '\n')
    with pytest.raises(UserError, match='have changed since the test'):
        Detections(other.folders[0], {})
    with pytest.raises(UserError, match='does not belong to metrics.json: coco/bbox_mAP is'):
        wrong = Detections(one.folders[0], one.metrics[0] | {'coco/bbox_mAP': 0.01})
        ap_score('coco/bbox_mAP', [wrong], [wrong])
    (one.folders[0] / 'evaluation' / 'detections.json').write_text('{')
    with pytest.raises(UserError, match='detections.json cannot be read'):
        Detections(one.folders[0], {})
    with pytest.raises(UserError, match='has no detections; use --test-only to test again'):
        Detections(tmp_path, {})


def classify(root, right, prefix='img', classes=6, topk=(1, 2)):
    """Test a classifier that is right for the images in ``right``; second best otherwise."""
    config = ConfigDict(test_evaluator=dict(type='Accuracy', topk=topk))
    keep_per_image(config, root)
    assert [each['type'] for each in config.test_evaluator] == ['Accuracy', 'mmkcla.PerImageAccuracy']
    evaluator = Evaluator([PerImageAccuracy(**{key: value for key, value in config.test_evaluator[1].items()
                                               if key != 'type'})])
    samples = []
    for number, correct in enumerate(right):
        scores = torch.zeros(classes)
        scores[number % classes], scores[(number + 1) % classes] = (0.9, 0.1) if correct else (0.1, 0.9)
        samples.append(DataSample(metainfo=dict(img_path=f'{prefix}/{number:03d}.png'))
                       .set_gt_label(number % classes).set_pred_score(scores))
    evaluator.process(samples)
    assert evaluator.evaluate(len(samples)) == {}
    return {'accuracy/top1': 100 * float(np.mean(right)), 'accuracy/top2': 100.}


def classifier(root, name, right, **options):
    folders = {seed: root / name / f'seed_{seed}' for seed in right}
    metrics = {seed: classify(folders[seed], values, **options) for seed, values in right.items()}
    return Candidate(name, folders, metrics, dict(type='Accuracy'), {})


def test_classifiers(tmp_path):
    first, second = [1] * 30 + [1] * 9 + [0], [1] * 30 + [0] * 9 + [1]
    a, b = classifier(tmp_path, 'a', {0: first}), classifier(tmp_path, 'b', {0: second})
    rows = list(csv.DictReader((a.folders[0] / 'evaluation' / 'per_image.csv').open()))
    assert len(rows) == 40 and rows[39] == dict(file='img/039.png', label='3', predicted='4', top1='0', top2='1')
    found = {(each.metric, each.over): each for each in compare([a, b])}
    top1 = found['accuracy/top1', 'images']
    assert top1.result.p == pytest.approx(2 * 11 / 1024) and top1.result.test == 'McNemar'
    assert top1.result.difference == pytest.approx(20)
    assert sentence(top1).startswith('accuracy/top1: a is higher (better) than b by 20.00 points, 95 % interval ')
    assert found['accuracy/top2', 'images'].result.p == 1
    other = classifier(tmp_path, 'other', {0: first}, classes=5)
    assert {each.reason for each in compare([a, other])} == {
        'the ground truth or its size differs between a and other for 30 of 40 images (for example img/005.png)'}
    several = compare([classifier(tmp_path, 'c', {0: first, 1: second}),
                       classifier(tmp_path, 'd', {0: second, 1: second})])
    assert [each.result.test for each in several if each.metric == 'accuracy/top1'] == ['Wilcoxon', 'Wilcoxon']


def test_what_the_table_refuses(tmp_path):
    metric = PerImageAccuracy(str(tmp_path), topk=5)
    with pytest.raises(UserError, match='topk=5, but image 0 has scores of 3 classes'):
        metric.process({}, [dict(gt_label=torch.tensor([1]), pred_score=torch.rand(3))])
    with pytest.raises(UserError, match='needs one label for each image; a.png has 2'):
        metric.process({}, [dict(img_path='a.png', gt_label=torch.tensor([1, 2]), pred_score=torch.rand(9))])
