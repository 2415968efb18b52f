"""The scores of each class in a test."""
import csv
import json

import pytest
from mmengine.config import Config
from mmengine.registry import DefaultScope
from seed_machine import TINY, write_pairs

from mmkcla.cli import main
from mmkcla.runtime.class_scores import class_table, score_classes
from mmkcla.runtime.hosts import import_hosts

FEW, MANY = ('a', 'b'), tuple(map(str, range(21)))


@pytest.fixture(autouse=True)
def _hosts():
    import_hosts(['mmdet', 'mmseg'])


def changed(evaluator, classes, scope='mmdet'):
    config = Config(dict(default_scope=scope, test_evaluator=evaluator))
    score_classes(config, classes)
    found = config.test_evaluator
    return [(one.type, one.get('classwise')) for one in (found if isinstance(found, list) else [found])]


def test_coco():
    both = ['bbox', 'segm']
    assert changed(dict(type='CocoMetric'), FEW) == [('mmkcla.CocoMetric', True)]
    assert changed(dict(type='CocoMetric'), MANY) == [('CocoMetric', None)]
    assert changed(dict(type='CocoMetric'), None) == [('CocoMetric', None)]
    assert changed(dict(type='CocoMetric', classwise=False), FEW) == [('CocoMetric', False)]
    assert changed(dict(type='mmdet.CocoMetric', metric=both), FEW) == [('mmkcla.CocoMetric', True)]
    assert changed(dict(type='CocoMetric', metric=both, classwise=True), MANY) == [('mmkcla.CocoMetric', True)]
    assert changed(dict(type='CocoMetric', metric=both, classwise=False), FEW) == [('CocoMetric', False)]
    assert changed([dict(type='mmkcla.CocoMetric'), dict(type='DumpResults')], FEW) == [
        ('mmkcla.CocoMetric', True), ('DumpResults', None)]


def test_the_classes_of_a_detector(monkeypatch):
    """The scope of the config decides, not one that an earlier run in this process left."""
    monkeypatch.setattr(DefaultScope, '_instance_dict', {})
    assert changed(dict(type='CocoMetric'), FEW) == [('mmkcla.CocoMetric', True)]


def test_segmentation():
    assert changed(dict(type='IoUMetric'), FEW, 'mmseg') == [('mmkcla.IoUMetric', None)]
    assert changed(dict(type='IoUMetric'), MANY, 'mmseg') == [('IoUMetric', None)]
    assert changed(dict(type='mmkcla.BinarySegMetric'), FEW, 'mmseg') == [('mmkcla.BinarySegMetric', None)]


def test_table():
    metrics = {'coco/bbox_mAP': .5, 'coco/bbox_disc_precision': .25, 'coco/segm_disc_precision': .125,
               'coco/bbox_big disc_precision': float('nan'), 'coco/segm_big disc_precision': 1.}
    assert class_table(metrics, ('disc', 'big disc')) == [
        '| class | bbox AP | segm AP |', '| --- | --- | --- |', '| disc | 0.250 | 0.125 |', '| big disc | - | 1.000 |']
    assert class_table({'coco/disc_precision': .25}, ('disc',))[2] == '| disc | 0.250 |'
    assert class_table({'mIoU': 50., 'IoU.a/b': 25., 'val/IoU.c': 75., 'Acc.c': 5.}, ('a/b', 'c'))[2:] == [
        '| a/b | 25.00 | - |', '| c | 75.00 | 5.00 |']
    assert class_table({'mIoU': 50.}, ('a',)) == [] and class_table({'coco/bbox_mAP': 1}, ()) == []


def test_classification():
    def kinds(evaluator, classes=None, head=3, scope='mmpretrain'):
        config = Config(dict(default_scope=scope, test_evaluator=evaluator, model=dict(head=dict(num_classes=head))))
        score_classes(config, classes)
        found = config.test_evaluator
        return [one.type for one in (found if isinstance(found, list) else [found])]

    import_hosts(['mmpretrain'])
    assert kinds(dict(type='Accuracy')) == ['Accuracy', 'mmkcla.ClassScores']
    assert kinds([dict(type='mmpretrain.Accuracy'), dict(type='SingleLabelMetric')], FEW)[1:] == [
        'SingleLabelMetric', 'mmkcla.ClassScores']
    assert kinds([dict(type='Accuracy'), dict(type='mmkcla.ClassScores')]) == ['Accuracy', 'mmkcla.ClassScores']
    for other in (kinds(dict(type='Accuracy'), head=21), kinds(dict(type='Accuracy'), MANY),
                  kinds(dict(type='Accuracy'), head=None)):
        assert other == ['Accuracy']
    assert kinds(dict(type='MultiLabelMetric')) == ['MultiLabelMetric']


def test_a_classifier_prints_them(tmp_path, capsys):
    import torch

    from mmkcla.runtime.config import load_config
    from mmkcla.runtime.hosts import prepare_hosts
    from mmkcla.runtime.inference.base import build_model
    config = load_config('demo/resnet20_digits.py', [])
    prepare_hosts(config)
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        torch.save(dict(state_dict=build_model(config).state_dict()), tmp_path / 'c.pth')
    assert main(['test', 'demo/resnet20_digits.py', str(tmp_path / 'c.pth'), '--work-dir', str(tmp_path / 't'),
                 '--cfg-options', 'test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']) == 0
    metrics = json.loads((tmp_path / 't' / 'metrics.json').read_text())
    lines = capsys.readouterr().out.splitlines()
    assert '| class | precision | recall | f1-score | support |' in lines
    support = [metrics[f'single-label/support.{digit}'] for digit in range(10)]
    recall = [metrics[f'single-label/recall.{digit}'] for digit in range(10)]
    assert sum(support) == 364
    hits = sum(share / 100 * number for share, number in zip(recall, support, strict=True))
    assert hits / 364 * 100 == pytest.approx(metrics['accuracy/top1'], abs=1e-3)
    row = next(line for line in lines if line.startswith('| 3 |'))
    assert f'confusion matrix: {tmp_path}/t/evaluation/confusion_matrix.csv' in lines
    with (tmp_path / 't' / 'evaluation' / 'confusion_matrix.csv').open() as file:
        matrix = list(csv.DictReader(file))
    assert [int(each['images']) for each in matrix] == support
    shares = [100 * float(each[f'share: {digit}']) for digit, each in enumerate(matrix)]
    assert shares == pytest.approx(recall, abs=1e-3)
    assert row.endswith(f'| {support[3]} |') and f' {recall[3]:.2f} ' in row


def test_a_test_writes_and_prints_them(tmp_path, capsys):
    config = tmp_path / 'tiny_classes.py'
    config.write_text(TINY.replace('{root}', str(write_pairs(tmp_path / 'data'))))
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'w'), '--cfg-options',
                 'train_cfg.max_iters=1']) == 0
    capsys.readouterr()
    assert main(['test', str(config), str(tmp_path / 'w' / 'iter_1.pth'), '--work-dir', str(tmp_path / 't'),
                 # what only a training uses does not stop a test
                 '--cfg-options', 'default_hooks.checkpoint.save_best=HD95_mean', 'default_hooks.checkpoint.rule=None',
                 "custom_hooks=[dict(type='EarlyStoppingHook',monitor='HD95_mean')]"]) == 0
    metrics = json.loads((tmp_path / 't' / 'metrics.json').read_text())
    assert {'mIoU', 'IoU.background', 'IoU.polyp', 'Dice.polyp', 'Acc.polyp'} <= metrics.keys()
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith('| polyp |'))
    row = [cell.strip() for cell in line.split('|')]
    assert {f'{metrics[f"{name}.polyp"]:.2f}' for name in ('IoU', 'Dice', 'Acc')} == set(row[2:-1])
