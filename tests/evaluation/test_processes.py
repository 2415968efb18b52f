"""Every metric gives the same scores on 1, 2 and 4 processes, also with fewer images than processes."""
import csv
import json
import re
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.structures.mask import encode_mask_results
from mmengine.dataset import DefaultSampler
from mmengine.dist import broadcast_object_list
from mmengine.registry import METRICS as HOST_METRICS
from ranks import run_ranks
from segmentation_samples import cases

import mmkcla
from mmkcla.runtime.hosts import import_hosts

SIZES = (1, 2, 3, 5)
CLASSES = ('disc', 'square', 'ring')


def generator(number):
    return np.random.default_rng(100 + number)


def detection(number):
    """One image with two objects and two predictions."""
    random = generator(number)
    boxes = torch.tensor(random.uniform(0, 20, (2, 4)), dtype=torch.float32)
    boxes[:, 2:] += boxes[:, :2] + 8
    masks = [np.zeros((64, 64), bool), np.zeros((64, 64), bool)]
    for mask, (left, top, right, bottom) in zip(masks, boxes.long().tolist(), strict=True):
        mask[top:bottom, left:right] = True
    return dict(img_id=number, ori_shape=(64, 64), pred_instances=dict(
        bboxes=boxes, labels=torch.tensor(random.integers(0, 3, 2)),
        scores=torch.tensor(random.random(2), dtype=torch.float32), masks=encode_mask_results(masks)))


def annotations(folder, size):
    """The truth is the prediction, shifted by two pixels."""
    path = folder / f'truth_{size}.json'
    if not path.exists():
        objects = []
        for number in range(size):
            found = detection(number)['pred_instances']
            for box, label in zip(found['bboxes'].tolist(), found['labels'].tolist(), strict=True):
                left, top, width, height = box[0] + 2, box[1], box[2] - box[0], box[3] - box[1]
                objects.append(dict(
                    id=len(objects) + 1, image_id=number, category_id=label + 1, bbox=[left, top, width, height],
                    area=width * height, iscrowd=0, segmentation=[[left, top, left + width, top, left + width,
                                                                   top + height, left, top + height]]))
        path.write_text(json.dumps(dict(
            images=[dict(id=number, file_name=f'{number}.png', width=64, height=64) for number in range(size)],
            categories=[dict(id=i, name=name) for i, name in enumerate(CLASSES, 1)], annotations=objects)))
    return str(path)


def labels(number):
    random = generator(number)
    truth = random.integers(0, 3, (1, 16, 16))
    found = np.where(random.random(truth.shape) < 0.7, truth, random.integers(0, 3, truth.shape))
    return dict(img_path=f'{number}.png', gt_sem_seg=dict(data=torch.tensor(truth)),
                pred_sem_seg=dict(data=torch.tensor(found)))


def classified(number):
    scores = torch.tensor(generator(number).random(3), dtype=torch.float32)
    return dict(img_path=f'{number}.png', gt_label=torch.tensor([number % 3]), pred_score=scores,
                pred_label=scores.argmax()[None])


def disparity(number):
    random = generator(number)
    truth = torch.tensor(random.uniform(1, 30, (1, 8, 8)))
    return dict(name=f'pair {number}', gt_disparity=dict(data=truth),
                pred_disparity=dict(data=truth + torch.tensor(random.normal(0, 2, (1, 8, 8)))))


def binary(number):
    return cases(max(SIZES))[number].to_dict()


# metric: (sample by number, arguments)
METRIC_CASES = {
    'mmkcla.CocoMetric': (detection, dict(metric=['bbox', 'segm'], classwise=True)),
    'mmkcla.BinarySegMetric': (binary, dict(polyp_protocol=True, hd95=True, distances=True, structure=True,
                                            boundary_f1=True)),
    'mmkcla.IoUMetric': (labels, dict(iou_metrics=['mIoU', 'mDice', 'mFscore'])),
    'mmkcla.PerImageAccuracy': (classified, dict(topk=(1, 2))),
    'mmkcla.ClassScores': (classified, {}),
    'mmkcla.ConfusionReport': (classified, {}),
    'mmkcla.StereoMetric': (disparity, dict(max_disparity=32)),
    'mmpretrain.Accuracy': (classified, dict(topk=(1, 2))),
    'mmpretrain.SingleLabelMetric': (classified, {}),
    'mmseg.IoUMetric': (labels, {}),
    'mmdet.CocoMetric': (detection, {}),
}


def evaluate_all(folder):
    """The scores of this process, {metric: {number of images: scores}}, and the tables that a metric writes."""
    found = {}
    for kind, (sample, options) in METRIC_CASES.items():
        for size in SIZES:
            extra = dict(options)
            if 'Coco' in kind:
                extra['ann_file'] = annotations(folder, size)
            if 'mmkcla' in kind and 'out_dir' in signature(HOST_METRICS.get(kind)).parameters:
                extra['out_dir'] = f'{kind}_{size}'
            metric = HOST_METRICS.build(dict(type=kind, **extra))
            metric.dataset_meta = dict(classes=CLASSES[:2] if 'Binary' in kind else CLASSES)
            for number in DefaultSampler(range(size), shuffle=False):  # repeats images if size is not a multiple
                metric.process({}, [sample(number)])
            found.setdefault(kind, {})[size] = dict(metric.evaluate(size))
            if 'out_dir' in extra:
                tables = [{path.name: path.read_text() for path in sorted(Path(extra['out_dir']).glob('*.csv'))}]
                broadcast_object_list(tables)  # rank 0 writes
                found[kind][size]['tables'] = tables[0]
    return found


@pytest.fixture(scope='module')
def scores(tmp_path_factory):
    """{number of processes: the scores of each rank}"""
    import_hosts(['mmdet', 'mmseg', 'mmpretrain'])
    folder = tmp_path_factory.mktemp('evaluation')
    for size in SIZES:
        annotations(folder, size)
    return {world: run_ranks(evaluate_all, world, folder, folder) for world in (1, 2, 4)}


def test_every_metric_of_the_package_is_here():
    registered = re.findall(r'@METRICS.register_module\(\)\nclass (\w+)', '\n'.join(
        path.read_text(encoding='utf-8') for path in Path(mmkcla.__file__).parent.rglob('*.py')))
    assert {f'mmkcla.{name}' for name in registered} == {name for name in METRIC_CASES if 'mmkcla' in name}


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('kind', METRIC_CASES)
def test_equal_to_one_process(scores, kind, size):
    alone = scores[1][0][kind][size]
    assert alone
    for world in (2, 4):
        for rank in scores[world]:
            found = rank[kind][size]
            assert found.keys() == alone.keys()
            for name, value in alone.items():
                if isinstance(value, (dict, list, torch.Tensor)):
                    assert found[name] == value, name
                else:
                    assert found[name] == pytest.approx(value, rel=1e-12, abs=0, nan_ok=True), name


def test_the_scores_are_of_all_images(scores):
    truth = [classified(number) for number in range(5)]
    right = sum(int(sample['pred_label']) == int(sample['gt_label']) for sample in truth)
    assert 0 < right < 5
    for world in (1, 2, 4):
        found = scores[world][-1]['mmpretrain.Accuracy'][5]
        assert found['accuracy/top1'] == pytest.approx(20 * right)
        tables = scores[world][0]['mmkcla.PerImageAccuracy'][5]['tables']
        assert tables['per_image.csv'].count('\n') == 6
        tables = scores[world][0]['mmkcla.ConfusionReport'][5]['tables']
        matrix = csv.reader(tables['confusion_matrix.csv'].splitlines())
        counts = [[int(cell) for cell in row[2:5]] for row in list(matrix)[1:]]
        assert sum(map(sum, counts)) == 5 and sum(counts[label][label] for label in range(3)) == right
