"""An infinite pixel and a learning rate of 1e10 through ``mmkcla train``: detection, segmentation, classification."""
import re

import poison  # noqa: F401  registers the transform
import pytest
import torch
from class_folders import write_classes
from seed_machine import TINY, write_pairs
from tiny import write_coco, write_detector

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main

PIXEL = "train_dataloader['dataset']['pipeline'].insert(1, dict(type='poison.InfinitePixel', name={name!r}))\n"
SKIP = ['default_hooks.non_finite.type=mmkcla.NonFiniteHook', 'default_hooks.non_finite.action=skip']


def detector(folder, more=''):
    root, name = write_coco(folder / 'coco'), '003.jpg'
    return write_detector(folder / 'config.py', root, more=more.format(name=name)), name


def segmenter(folder, more=''):
    path = folder / 'config.py'
    path.write_text(TINY.replace('{root}', str(write_pairs(folder / 'data'))).replace('max_iters=2', 'max_iters=6')
                    + more.format(name='train1.png'))
    return path, 'train1.png'


def classifier(folder, more=''):
    path = folder / 'config.py'
    root = write_classes(folder / 'data', images=4)
    path.write_text(CLASSIFIER.replace('{root}', str(root)) + more.format(name='banana/1.png'))
    return path, 'banana/1.png'


CLASSIFIER = '''
default_scope = 'mmpretrain'
model = dict(
    type='ImageClassifier', backbone=dict(type='ResNet', depth=18, stem_channels=8, base_channels=8, num_stages=2,
                                          strides=(1, 2), dilations=(1, 1), out_indices=(1, )),
    neck=dict(type='GlobalAveragePooling'), head=dict(type='LinearClsHead', num_classes=3, in_channels=16),
    data_preprocessor=dict(num_classes=3, mean=[128.] * 3, std=[64.] * 3))
_data = dict(type='CustomDataset', data_root='{root}', pipeline=[
    dict(type='mmkcla.LoadImageFromFile'), dict(type='PackInputs')])
train_dataloader = dict(batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=True), dataset=_data)
train_cfg = dict(by_epoch=True, max_epochs=2)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=1))
'''


HOSTS = [detector, segmenter, classifier]


def error(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize('host', HOSTS)
def test_infinite_pixel(tmp_path, monkeypatch, capsys, host):
    monkeypatch.chdir(tmp_path)
    path, name = host(tmp_path, PIXEL)
    assert main(['train', str(path), '--no-checks', '--work-dir', 'w']) == 3
    line = error(capsys)
    assert 'the images have NaN or infinite pixels; images: ' in line and name in line


@pytest.mark.parametrize('host', HOSTS)
def test_learning_rate_of_1e10(tmp_path, monkeypatch, capsys, host):
    monkeypatch.chdir(tmp_path)
    path, _ = host(tmp_path)
    assert main(['train', str(path), '--no-checks', '--work-dir', 'w', '--cfg-options',
                 'optim_wrapper.optimizer.lr=1e10']) == 3
    assert 'NaN or infinite' in error(capsys)
    for saved in (tmp_path / 'w').glob('*.pth'):
        weights = read_checkpoint(saved)['state_dict'].values()
        assert all(value.isfinite().all() for value in weights)


@pytest.mark.parametrize('host', HOSTS)
def test_skipped(tmp_path, monkeypatch, capsys, host):
    monkeypatch.chdir(tmp_path)
    path, name = host(tmp_path, PIXEL)
    assert main(['train', str(path), '--no-checks', '--work-dir', 'w', '--cfg-options', *SKIP]) == 0
    assert 'with NaN or infinite values skipped' in capsys.readouterr().err
    log = next((tmp_path / 'w').glob('2*/*.log')).read_text()
    assert 'skipped (1 of at most 10): the images have NaN or infinite pixels; images: ' in log and name in log
    last = read_checkpoint((tmp_path / 'w' / 'last_checkpoint').read_text())
    assert all(torch.isfinite(value).all() for value in last['state_dict'].values())


@pytest.mark.parametrize('part', ['state_dict', 'ema_state_dict'])
def test_no_command_uses_a_diverged_checkpoint(tmp_path, monkeypatch, capsys, part):
    """Whatever wrote it: a NaN in a weight or in the statistics of a batch norm, also of the averaged weights."""
    monkeypatch.chdir(tmp_path)
    path, _ = classifier(tmp_path)
    path.write_text(path.read_text() + "test_dataloader = train_dataloader\ntest_cfg = dict()\n"
                    "test_evaluator = dict(type='Accuracy')\n")
    assert main(['train', str(path), '--no-checks', '--work-dir', 'w', '--cfg-options', 'train_cfg.max_epochs=1']) == 0
    saved = read_checkpoint('w/epoch_1.pth')
    weights = dict(saved['state_dict'])
    weights['backbone.bn1.running_var'] = torch.full_like(weights['backbone.bn1.running_var'], float('nan'))
    torch.save({**saved, part: weights}, 'nan.pth')
    image = next((tmp_path / 'data').rglob('*.png'))
    for words in (['test', path, 'nan.pth', '--no-checks'], ['infer', path, 'nan.pth', image, '--out-dir', 'out'],
                  ['train', path, '--no-checks', '--work-dir', 'v', '--resume', 'nan.pth'],
                  ['train', path, '--no-checks', '--work-dir', 'v', '--cfg-options', 'load_from=nan.pth'],
                  ['train', path, '--no-checks', '--work-dir', 'v', '--cfg-options',
                   'model.backbone.init_cfg.type=Pretrained', 'model.backbone.init_cfg.checkpoint=nan.pth',
                   'model.backbone.init_cfg.prefix=backbone']):
        assert main(list(map(str, words))) == 2, words
        said = re.sub(r'^error: (load_from: |model\.backbone\.init_cfg\.checkpoint: )?', '', error(capsys))
        assert said == ('checkpoint nan.pth has NaN or infinite values in backbone.bn1.running_var: its training had '
                        'diverged before it was saved; use an earlier checkpoint'), words
