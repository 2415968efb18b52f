"""mmkcla.CocoMetric against mmdet's on random sets: every option, ids of every kind, and where mmdet's is wrong."""
import json
import logging

import numpy as np
import pytest
import torch
from mmdet.evaluation.metrics import CocoMetric as HostMetric
from mmdet.structures.mask import encode_mask_results

from mmkcla.evaluation import CocoMetric

CLASSES = ('a', 'b', 'c')
SIDE = 200


def random_set(seed, images=8, objects=None, image_id=int, annotation_id=lambda n: n + 1):
    """A COCO file's content with boxes, masks, crowds and images without objects, and predictions for it."""
    rng = np.random.default_rng(seed)
    content = dict(images=[], annotations=[], categories=[dict(id=2 * i + 1, name=name) for i, name in
                                                          enumerate(CLASSES)])
    samples = []
    for number in range(images):
        identity = image_id(number + 1)
        content['images'].append(dict(id=identity, file_name=f'{number}.jpg', width=SIDE, height=SIDE))
        boxes, labels = [], []
        for _ in range(rng.integers(0, 6) if objects is None else objects):
            x, y, w, h = (rng.integers(0, 100), rng.integers(0, 100), rng.integers(4, 100), rng.integers(4, 100))
            label = int(rng.integers(0, len(CLASSES)))
            boxes.append([x, y, x + w, y + h])
            labels.append(label)
            content['annotations'].append(dict(
                id=annotation_id(len(content['annotations'])), image_id=identity, category_id=2 * label + 1,
                bbox=[int(x), int(y), int(w), int(h)], area=int(w * h),
                iscrowd=int(objects is None and rng.random() < 0.1),
                segmentation=[[int(v) for v in (x, y, x + w, y, x + w, y + h, x, y + h)]]))
            if content['annotations'][-1]['iscrowd']:
                mask = np.zeros((SIDE, SIDE), bool)
                mask[y:y + h, x:x + w] = True
                content['annotations'][-1]['segmentation'] = _rle(mask)
        found = np.array(boxes, float).reshape(-1, 4) + rng.normal(0, 3, (len(boxes), 4))
        found = np.concatenate([found, rng.uniform(0, 90, (2, 4)) + [0, 0, 100, 100]])
        guessed = np.array([*(label if rng.random() < 0.8 else 0 for label in labels), 0, 1])
        masks = np.zeros((len(found), SIDE, SIDE), bool)
        for mask, box in zip(masks, found.clip(0, SIDE).astype(int), strict=True):
            mask[box[1]:box[3], box[0]:box[2]] = True
        samples.append(dict(img_id=identity, ori_shape=(SIDE, SIDE), pred_instances=dict(
            bboxes=torch.tensor(found, dtype=torch.float32), labels=torch.tensor(guessed),
            scores=torch.tensor(rng.random(len(found)), dtype=torch.float32), masks=encode_mask_results(masks))))
    return content, samples


def _rle(mask):
    counts, value, run = [], False, 0
    for pixel in mask.T.ravel():
        if bool(pixel) != value:
            counts.append(run)
            value, run = not value, 0
        run += 1
    return dict(size=list(mask.shape), counts=[*counts, run])


def scores(metric_class, path, samples, **options):
    metric = metric_class(ann_file=str(path), **options)
    metric.dataset_meta = dict(classes=CLASSES)
    metric.process({}, samples)
    return metric.evaluate(len(samples))


def written(tmp_path, content):
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(content))
    return path


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1.1e-3, nan_ok=True), name  # both round to three digits


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('options', [
    dict(metric=['bbox', 'segm']), dict(metric='bbox', classwise=True),
    dict(metric='segm', iou_thrs=np.array([0.5, 0.75])),
    dict(metric='bbox', iou_thrs=np.array([0.5, 0.6, 0.75])), dict(metric='proposal'), dict(metric='bbox',
                                                                                proposal_nums=(1, 10, 100)),
    dict(metric='proposal_fast'), dict(metric=['bbox', 'proposal_fast']), dict(metric='bbox', metric_items=['mAP_50']),
    dict(metric=['bbox', 'segm', 'proposal']), dict(metric='proposal', metric_items=['AR@300', 'AR_s@1000']),
    dict(metric='proposal', proposal_nums=(2, 5, 20)), dict(metric='proposal_fast', proposal_nums=(3, )),
    dict(metric='bbox', sort_categories=True), dict(metric='bbox', use_mp_eval=True),
    dict(metric='segm', classwise=True, proposal_nums=(1, 2, 50)), dict(metric='bbox', prefix='mine'),
    dict(metric='proposal_fast', iou_thrs=np.array([0.5, 0.7])),
], ids=lambda options: '-'.join(map(str, options.values())))
def test_equal_to_the_host(tmp_path, seed, options):
    # mmdet's fast recall takes images of equally many objects only, on numpy 2
    content, samples = random_set(seed, objects=3 if 'proposal_fast' in str(options) else None)
    path = written(tmp_path, content)
    same(scores(CocoMetric, path, samples, **options), scores(HostMetric, path, samples, **options))


ODD_IDS = {'text': str, 'empty text': lambda n: 'x' * (n - 1), 'fractional': lambda n: n + 0.5,
           'negative': lambda n: -n - 1, 'from 0': lambda n: n - 1, 'around 0': lambda n: n - 3,
           '2^40': lambda n: n + 2**40, '2^53': lambda n: n + 2**53, '2^63': lambda n: n + 2**63,
           '2^64': lambda n: n + 2**64, '10^300': lambda n: n + 10**300}


@pytest.mark.parametrize('image_id', ODD_IDS.values(), ids=ODD_IDS)
def test_ids_of_images(tmp_path, image_id):
    content, samples = random_set(5, image_id=image_id)
    path = written(tmp_path, content)
    same(scores(CocoMetric, path, samples), scores(HostMetric, path, samples))
    assert scores(CocoMetric, path, samples)['coco/bbox_mAP_50'] > 0.2


@pytest.mark.parametrize(('annotation_id', 'reason'), [
    (lambda n: n, '1 0'), (lambda n: n // 2 + 1, 'duplicated'), (lambda n: f'x{n}', 'not integers'),
    (lambda n: n + 0.5, 'not integers'), (lambda n: -n - 1, 'negative'), (lambda n: n - 3, 'negative'),
    (lambda n: n + 2**63, 'above 9007199254740991'), (lambda n: n + 2**64, 'above 9007199254740991'),
    (lambda n: n + 2**53, 'above 9007199254740991')])
def test_ids_of_annotations_that_would_be_wrong_are_renumbered(tmp_path, annotation_id, reason, monkeypatch):
    lines = []
    monkeypatch.setattr('mmkcla.evaluation.coco.print_log', lambda text, logger, level: lines.append((text, level)))
    right_content, samples = random_set(1)
    right = scores(HostMetric, written(tmp_path, right_content), samples)
    content, _ = random_set(1, annotation_id=annotation_id)
    same(scores(CocoMetric, written(tmp_path, content), samples), right)
    assert any(reason in text for text, _ in lines) and lines[0][1] == logging.WARNING


@pytest.mark.parametrize('thresholds', [[0.5, 0.75], (0.5, 0.75), np.array([0.5, 0.75]), 0.5, np.float64(0.6), [0.5],
                                        (0.9,), np.array(0.5)], ids=repr)
def test_thresholds_as_a_config_has_them(tmp_path, thresholds):
    """mmdet's metric fails at a list or a number."""
    content, samples = random_set(3)
    path = written(tmp_path, content)
    expected = scores(HostMetric, path, samples, iou_thrs=np.atleast_1d(thresholds))
    same(scores(CocoMetric, path, samples, iou_thrs=thresholds), expected)


def test_classwise_keeps_boxes_and_masks(tmp_path):
    content, samples = random_set(2)
    path = written(tmp_path, content)
    both = scores(CocoMetric, path, samples, metric=['bbox', 'segm'], classwise=True)
    for metric in ('bbox', 'segm'):
        alone = scores(HostMetric, path, samples, metric=metric, classwise=True)
        for name in CLASSES:
            assert both[f'coco/{metric}_{name}_precision'] == pytest.approx(alone[f'coco/{name}_precision'], abs=1.1e-3)
        assert both[f'coco/{metric}_mAP'] == pytest.approx(alone[f'coco/{metric}_mAP'], abs=1.1e-3)


@pytest.mark.parametrize('options', [dict(metric=['bbox', 'segm']), dict(metric='proposal'),
                                     dict(metric='bbox', classwise=True)], ids=str)
@pytest.mark.parametrize('image_id', [str, lambda n: n + 0.5, lambda n: n - 1, lambda n: -n, lambda n: n + 2**64])
@pytest.mark.parametrize('category_id', [lambda n: n - 1, lambda n: n + 0.5, lambda n: 7 * n, lambda n: n,
                                         lambda n: -n, lambda n: n + 2**64])
def test_ids_of_every_kind_with_every_metric(tmp_path, options, image_id, category_id):
    options = dict(options)
    content, samples = random_set(6, image_id=image_id)
    for part, key in ((content['categories'], 'id'), (content['annotations'], 'category_id')):
        for one in part:
            one[key] = category_id(one[key])
    path = written(tmp_path, content)
    found = scores(CocoMetric, path, samples, **options)
    if options.get('classwise') and type(content['categories'][0]['id']) is float:  # mmdet ends with a TypeError
        del options['classwise']
        classes = {f'coco/{name}_precision' for name in CLASSES}
        assert np.nanmean([found.pop(name) for name in classes]) == pytest.approx(found['coco/bbox_mAP'], abs=2e-3)
    same(found, scores(HostMetric, path, samples, **options))


@pytest.mark.parametrize('options', [
    dict(), dict(metric=['bbox', 'segm']), dict(metric=['bbox', 'segm'], classwise=True), dict(classwise=True),
    dict(metric='proposal'), dict(metric=['proposal', 'segm'], classwise=True, prefix='x'),
    dict(metric='bbox', metric_items=['mAP_50']), dict(metric='proposal_fast', proposal_nums=(5, 100))], ids=str)
def test_names_are_those_of_the_results(tmp_path, options):
    content, samples = random_set(1, objects=3)
    path = written(tmp_path, content)
    assert set(CocoMetric(ann_file=str(path), **options).names) == set(scores(CocoMetric, path, samples, **options))


def test_images_without_results_are_reported(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr('mmkcla.evaluation.coco.print_log', lambda text, logger, level: lines.append(text))
    content, samples = random_set(1)
    path = written(tmp_path, content)
    same(scores(CocoMetric, path, samples[:5]), scores(HostMetric, path, samples[:5]))
    assert lines == ['3 of 8 images of the annotation file have no results; their objects count as missed']


def test_text_ids_of_categories(tmp_path):
    content, samples = random_set(4)
    for part, key in ((content['categories'], 'id'), (content['annotations'], 'category_id')):
        for one in part:
            one[key] = f'c{one[key]}'
    path = written(tmp_path, content)
    found = scores(CocoMetric, path, samples, classwise=True)
    assert found['coco/a_precision'] > 0.1
    same({name: value for name, value in found.items() if not name.endswith('_precision')},
         scores(HostMetric, path, samples))


def test_categories_in_another_order_of_ids(tmp_path):
    content, samples = random_set(4)
    content['categories'].reverse()
    path = written(tmp_path, content)
    for options in (dict(), dict(sort_categories=True)):
        same(scores(CocoMetric, path, samples, classwise=True, **options),
             scores(HostMetric, path, samples, classwise=True, **options))


def test_files_of_results(tmp_path):
    content, samples = random_set(2)
    path = written(tmp_path, content)
    texts = {}
    for kind in (CocoMetric, HostMetric):
        for format_only in (True, False):
            prefix = tmp_path / f'{kind.__module__}_{format_only}'
            found = scores(kind, path, samples, metric=['bbox', 'segm'], format_only=format_only,
                           outfile_prefix=str(prefix))
            assert bool(found) is not format_only
            texts[kind, format_only] = [(tmp_path / f'{prefix.name}.{part}.json').read_text()
                                        for part in ('bbox', 'segm')]
    assert len({tuple(text) for text in texts.values()}) == 1


def test_without_an_annotation_file():
    content, samples = random_set(3)
    by_image = {image['id']: [] for image in content['images']}
    for one in content['annotations']:
        x, y, w, h = one['bbox']
        by_image[one['image_id']].append(dict(bbox=[x, y, x + w, y + h], bbox_label=(one['category_id'] - 1) // 2,
                                              ignore_flag=one['iscrowd']))
    found = []
    for kind in (CocoMetric, HostMetric):
        metric = kind(metric='bbox')
        metric.dataset_meta = dict(classes=CLASSES)
        metric.process({}, [dict(sample, instances=by_image[sample['img_id']]) for sample in samples])
        found.append(metric.evaluate(len(samples)))
    same(*found)
    assert found[0]['coco/bbox_mAP_50'] > 0.2


def test_no_prediction_at_all(tmp_path):
    content, samples = random_set(3)
    for sample in samples:
        instances = sample['pred_instances']
        for name in ('bboxes', 'labels', 'scores', 'masks'):
            instances[name] = instances[name][:0]
    path = written(tmp_path, content)
    assert scores(CocoMetric, path, samples) == scores(HostMetric, path, samples) == {}
