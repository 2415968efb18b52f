"""Trainings that are interrupted and resumed, compared with ones that were not."""
import random
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from class_folders import write_classes
from mmengine.config import Config
from mmengine.logging import MessageHub
from seg_folders import write_pairs
from tiny import KCLA, write_coco, write_detector

from mmkcla.cli import main
from mmkcla.runtime.hooks import curves
from mmkcla.runtime.loops import ExactEpochLoop, ExactIterLoop

CLASSIFIER = '''
default_scope = 'mmpretrain'
randomness = dict(seed=3)
model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmkcla.KCLAResNet', depth=18, base_channels=8, stem_channels=8, num_stages=2, strides=(1, 2),
                  dilations=(1, 1), out_indices=(1, ), drop_path_rate=0.3,
                  layer_attention=dict(type='KCLA', head_channels=8, drop_path=0.3)),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead', num_classes=3, in_channels=16),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.)]))
data_preprocessor = dict(mean=[127.] * 3, std=[60.] * 3, to_rgb=True, num_classes=3)
_train = [dict(type='LoadImageFromFile'), dict(type='RandomResizedCrop', scale=16), dict(type='RandomFlip', prob=0.5),
          dict(type='ColorJitter', brightness=0.4, contrast=0.4), dict(type='RandomErasing', erase_prob=0.5),
          dict(type='PackInputs')]
_val = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='CustomDataset', data_root='{root}', data_prefix='train', pipeline=_train))
val_dataloader = dict(
    batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='CustomDataset', data_root='{root}', data_prefix='val', pipeline=_val))
val_evaluator = dict(type='Accuracy', topk=(1, ))
val_cfg = dict()
train_cfg = dict(by_epoch=True, max_epochs=3, val_interval=1)
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=5),
    dict(type='CosineAnnealingLR', by_epoch=True, T_max=3, convert_to_iter_based=True)]
custom_hooks = [dict(type='EMAHook', ema_type='ExponentialMovingAverage', momentum=0.1)]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=2),
    checkpoint=dict(type='CheckpointHook', interval=1, by_epoch=False, save_best='auto'))
'''


def write_classifier(folder: Path) -> Path:
    """Write images of three classes and the config of a classifier with much randomness; 18 images, 5 batches."""
    write_classes(folder / 'train', images=6)
    write_classes(folder / 'val', images=2, seed=1)
    path = folder / 'classifier.py'
    path.write_text(CLASSIFIER.replace('{root}', str(folder)))
    return path


class Stopped(Exception):
    """Stands for the death of a process."""


@contextmanager
def stop_after(monkeypatch, iteration):
    """Raise :class:`Stopped` after an iteration (counted from 1) and its hooks, before a validation."""
    with monkeypatch.context() as patch:
        for kind in (ExactEpochLoop, ExactIterLoop):
            def run_iter(loop, *args, _before=kind.run_iter):
                _before(loop, *args)
                if loop.iter == iteration:
                    raise Stopped
            patch.setattr(kind, 'run_iter', run_iter)
        yield


def command(config: Path, work_dir: Path, options=(), resumed=False) -> list[str]:
    """Return the arguments of the command for a training."""
    return [str(one) for one in ('train', config, '--work-dir', work_dir, '--no-checks',
                                 *(['--resume'] if resumed else []), *(['--cfg-options', *options] if options else []))]


_ended = [0]  # the second in which the last training of this process ended


def train(monkeypatch, config: Path, work_dir: Path, options=(), stops=(), resumed_options=(),
          resumed_only=False) -> None:
    """Train; stop after each iteration of ``stops`` and resume. ``resumed_only``: an earlier run was killed."""
    for number, stop in enumerate([*stops, None], int(resumed_only)):
        for seed in (random.seed, np.random.seed, torch.manual_seed):  # of a new process
            seed(random.SystemRandom().randrange(2 ** 31))
        MessageHub._instance_dict.clear()
        while int(time.time()) == _ended[0]:  # mmengine names logs by the second; the next run would write to them
            time.sleep(0.05)
        arguments = command(config, work_dir, [*options, *(resumed_options if number else ())], number > 0)
        with stop_after(monkeypatch, stop), monkeypatch.context() as patch:
            patch.setattr(Config, 'pretty_text', property(lambda config: ''))
            patch.setattr(curves, 'draw_curves', lambda *_: None)
            try:
                assert main(arguments) == 0
                assert stop is None
            except Stopped:
                assert stop is not None
        _ended[0] = int(time.time())


DETECTION = '''
randomness = dict(seed=3)
_mosaic = [
    dict(type='Mosaic', img_scale=(64, 64)), dict(type='RandomAffine', border=(-32, -32)),
    dict(type='MixUp', img_scale=(64, 64)), dict(type='PhotoMetricDistortion'),
    dict(type='RandomResize', scale=(64, 64), ratio_range=(0.8, 1.2), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(56, 56), allow_negative_crop=False), dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs')]
train_dataloader = dict(
    batch_size=2, num_workers=0, persistent_workers=False, batch_sampler={batch_sampler},
    sampler=dict(_delete_=True, type='{sampler}', shuffle=True),
    dataset=dict(_delete_=True, type='MultiImageMixDataset', pipeline=_mosaic, dataset=dict(
        type='CocoDataset', pipeline=[_load, _labels], **_data)))
train_cfg = dict(_delete_=True, **{loop})
custom_hooks = [dict(type='EMAHook', ema_type='ExpMomentumEMA', momentum=0.01, update_buffers=True)]
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=1, by_epoch=False))
'''


def write_detection(folder: Path, sampler: str = 'InfiniteSampler', batch_sampler: str = 'None',
                    loop: str = "dict(type='IterBasedTrainLoop', max_iters=4, val_interval=2)") -> Path:
    """Write six images and the config of a detector with mosaics, random crops and sampled proposals."""
    if not (folder / 'coco').exists():
        write_coco(folder / 'coco')
    more = DETECTION
    for name, value in (('sampler', sampler), ('batch_sampler', batch_sampler), ('loop', loop)):
        more = more.replace(f'{{{name}}}', value)
    return write_detector(folder / f'detector_{sampler}.py', folder / 'coco', KCLA, more)


SEGMENTATION = '''
default_scope = 'mmseg'
randomness = dict(seed=3)
_norm = dict(type='BN')
data_preprocessor = dict(type='SegDataPreProcessor', mean=[127.] * 3, std=[60.] * 3, size=(8, 8))
model = dict(
    type='EncoderDecoder', data_preprocessor=data_preprocessor,
    backbone=dict(type='mmkcla.KCLAResNet', depth=18, base_channels=8, stem_channels=8, num_stages=2, strides=(1, 2),
                  dilations=(1, 1), out_indices=(0, 1), norm_cfg=_norm, layer_attention=dict(type='KCLA',
                                                                                           head_channels=8)),
    decode_head=dict(type='FCNHead', in_channels=16, in_index=1, channels=8, num_convs=1, num_classes=3,
                     norm_cfg=_norm, dropout_ratio=0.5),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
_data = dict(type='BaseSegDataset', data_root='{root}', img_suffix='.png', metainfo=dict(classes=('a', 'b', 'c')),
             data_prefix=dict(img_path='images/train', seg_map_path='masks/train'))
_load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
_augment = [dict(type='RandomResize', scale=(16, 12), ratio_range=(0.8, 2.0), keep_ratio=True),
            dict(type='RandomCrop', crop_size=(8, 8), cat_max_ratio=0.75), dict(type='RandomFlip', prob=0.5),
            dict(type='PhotoMetricDistortion'), dict(type='PackSegInputs')]
train_dataloader = dict(batch_size=2, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True),
                        dataset=dict(pipeline=[*_load, *_augment], **_data))
val_dataloader = dict(batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
                      dataset=dict(pipeline=[*_load, dict(type='PackSegInputs')], **_data))
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
val_cfg = dict(type='ValLoop')
train_cfg = dict(type='IterBasedTrainLoop', max_iters=9, val_interval=3)
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.01, momentum=0.9),
                     clip_grad=dict(max_norm=1.))
param_scheduler = [dict(type='PolyLR', by_epoch=False, end=9)]
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=1, by_epoch=False, save_best='mIoU'))
'''


def write_segmentation(folder: Path) -> Path:
    """Write three images with masks and the config of a network with dropout and random crops."""
    write_pairs(folder, images=3)
    path = folder / 'segmentation.py'
    path.write_text(SEGMENTATION.replace('{root}', str(folder)))
    return path
