"""The text of a detector's config."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError
from ..utils.text import plural
from . import rules
from .config_text import comment, header, image_loader, names, setting, source
from .fingerprint import DetectionFingerprint
from .machine import Machine
from .rules import Setting

IMAGENET = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
_LARGEST = 1.25  # of the random scales


def config_text(found: DetectionFingerprint, root: Path, prefixes: Mapping[str, str], machine: Machine,
                size: str | None, pretrained: bool | None) -> str:
    """The config ``kcla.py`` of a detection project."""
    network = rules.network_size(machine, size)
    base = network.value == 'base'
    start = _start(base, pretrained)
    side = rules.detection_size(found.images.longer, found.object_side, machine)
    heads = rules.BYTES_PER_IMAGE['mask' if found.with_masks else 'box'] if base else 0
    pixels = int((_LARGEST * side.value) ** 2)
    batch = rules.batch_size(machine, pixels, f'detection-{network.value}', found.trained, 16, heads)
    lr = (rules.learning_rate(0.02, 16, batch.value, "the host's SGD") if base
          else rules.learning_rate(1e-3, 8, batch.value, 'AdamW of configs/demo'))
    aim = (6000, 12, 100) if base else (2000, 12, 100)
    length = rules.epochs(found.trained, batch.value, *aim)
    kind = 'mask' if found.with_masks else 'faster'
    parts = [
        header('detection', f'{plural(sum(found.splits.values()), "image")} in {root}', str(machine)),
        f"_base_ = 'mmdet::{kind}_rcnn/{kind}-rcnn_r50_fpn_1x_coco.py'  # "
        + ('all objects have masks' if found.with_masks else 'boxes only'), '',
        f'data_root = {source(root.as_posix() + "/")}',
        "annotations = '{{ fileDirname }}/annotations/'  # checked copies beside this file",
        comment("classes in the annotation files' order; every head counts them"), names('classes', found.classes),
        setting('image_size', side, f'({side.value}, {side.value})'), setting('batch_size', batch),
        setting('lr', lr), setting('max_epochs', length),
        setting('anchor_scales', (scale := rules.anchor_scale(found.relative_side, side.value)), f'[{scale.value}]'),
        setting('anchor_ratios', rules.anchor_ratios(found.aspect_ratio)),
        setting('max_per_img', rules.detections(found.per_image['100'])), '',
        comment(f'{network.value} network: {network.reason}. {start.reason}'),
        (_base_model if base else _small_model)(found, start.value), '',
        _data(found, prefixes, machine), '', _schedule(found, base, length.value, batch.value)]
    return '\n'.join(parts) + '\n'


def _start(base: bool, pretrained: bool | None) -> Setting:
    """Whether ImageNet weights are the start."""
    if not base and pretrained:
        raise UserError('--pretrained: there are no ImageNet weights of the small network; --size base has some')
    if not base:
        return Setting(False, 'Narrow, from scratch: there are no ImageNet weights of this width')
    if pretrained is False:
        return Setting(False, 'From scratch (--no-pretrained): nothing is frozen, BN learns its statistics')
    return Setting(True, "ImageNet weights of torchvision, downloaded at the first start (else plan with "
                   '--no-pretrained); layer_scale_init=0 makes KCLA start as the plain network')


def _normalisation(found: DetectionFingerprint, pretrained: bool) -> str:
    mean, std = IMAGENET if pretrained else (found.images.mean, found.images.std)
    return (f'data_preprocessor=dict(mean={mean}, std={std}),  # '
            + ("ImageNet's" if pretrained else "the images' own"))


def _base_model(found: DetectionFingerprint, pretrained: bool) -> str:
    attention = "dict(type='KCLA', layer_scale_init=0.)" if pretrained else "dict(type='KCLA')"
    scratch = '' if pretrained else ',\n        frozen_stages=-1, norm_eval=False, init_cfg=None'
    heads = 'bbox_head=dict(num_classes=len(classes))' + (
        ', mask_head=dict(num_classes=len(classes))' if found.with_masks else '')
    return f'''\
model = dict(
    {_normalisation(found, pretrained)}
    backbone=dict(
        type='mmkcla.LayerAttentionResNet', layer_attention={attention}{scratch}),
    rpn_head=dict(anchor_generator=dict(scales=anchor_scales, ratios=anchor_ratios)),
    roi_head=dict({heads}),
    test_cfg=dict(rcnn=dict(max_per_img=max_per_img)))'''


def _small_model(found: DetectionFingerprint, pretrained: bool) -> str:
    heads = ('        bbox_roi_extractor=dict(out_channels=64),\n'
             '        bbox_head=dict(in_channels=64, fc_out_channels=128, num_classes=len(classes))')
    if found.with_masks:
        heads += (',\n        mask_roi_extractor=dict(out_channels=64),\n        mask_head=dict(num_convs=2, '
                  'in_channels=64, conv_out_channels=64, num_classes=len(classes))')
    return f'''\
model = dict(
    {_normalisation(found, False)}
    backbone=dict(
        type='mmkcla.LayerAttentionResNet', depth=18, stem_channels=32, base_channels=32, frozen_stages=-1,
        norm_eval=False, init_cfg=None, layer_attention=dict(type='KCLA', head_channels=16, drop_path=0.)),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64, norm_cfg=dict(type='BN', requires_grad=True)),
    rpn_head=dict(
        in_channels=64, feat_channels=64, anchor_generator=dict(scales=anchor_scales, ratios=anchor_ratios)),
    roi_head=dict(
{heads}),
    train_cfg=dict(  # few proposals and samples: this network is for CPUs and small GPUs
        rpn=dict(sampler=dict(num=64)), rcnn=dict(sampler=dict(num=32)),
        rpn_proposal=dict(nms_pre=200, max_per_img=64)),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=max_per_img), rcnn=dict(max_per_img=max_per_img)))'''


def _data(found: DetectionFingerprint, prefixes: Mapping[str, str], machine: Machine) -> str:
    if 'test' in prefixes:
        test = f'''\
test_dataloader = {_loader('test', prefixes)}
test_evaluator = {_evaluator('test', found)}'''
    else:
        test = '''\
# no test file: the result is of the images that the best checkpoint is chosen on; give a third file for a final one
test_dataloader = val_dataloader
test_evaluator = val_evaluator'''
    load = image_loader(found.images)
    first = f'train_pipeline[0] = {load}\n' if 'mmkcla' in load else ''
    return f'''\
train_pipeline = _base_.train_pipeline  # load, resize, mirror left and right
{first}train_pipeline[2] = dict(type='RandomResize', scale=image_size, ratio_range=(0.8, {_LARGEST}), keep_ratio=True)
test_pipeline = _base_.test_pipeline
{first.replace('train_', 'test_')}test_pipeline[1] = dict(type='Resize', scale=image_size, keep_ratio=True)
{setting('workers', rules.workers(machine))}
data = dict(data_root=data_root, metainfo=dict(classes=classes))
train_dataloader = {_loader('train', prefixes)}
val_dataloader = {_loader('val', prefixes)}
val_evaluator = {_evaluator('val', found)}
{test}'''


def _loader(split: str, prefixes: Mapping[str, str]) -> str:
    batch, more, pipeline = (('batch_size=batch_size, ', 'filter_cfg=dict(min_size=1), ', 'train_pipeline')
                             if split == 'train' else ('', '', 'test_pipeline'))
    return f'''dict(
    {batch}num_workers=workers, persistent_workers=workers > 0,
    dataset=dict(ann_file=annotations + '{split}.json', data_prefix=dict(img={source(prefixes[split])}),
                 {more}pipeline={pipeline}, **data))'''


def _evaluator(split: str, found: DetectionFingerprint) -> str:
    metrics = "['bbox', 'segm']" if found.with_masks else "'bbox'"
    return f"dict(type='mmkcla.CocoMetric', ann_file=annotations + '{split}.json', metric={metrics})"


def _schedule(found: DetectionFingerprint, base: bool, length: int, batch: int) -> str:
    first = rules.warmup(length * -(-found.trained // batch))
    interval = max(1, length // 10)
    if base:
        optimizer = 'optimizer=dict(lr=lr)'
        decay = (f"dict(type='MultiStepLR', by_epoch=True, end=max_epochs, milestones=[{round(length * 2 / 3)}, "
                 f'{round(length * 11 / 12)}], gamma=0.1)')
    else:
        optimizer = ("\n    optimizer=dict(_delete_=True, type='AdamW', lr=lr, weight_decay=1e-2), "
                     'clip_grad=dict(max_norm=10.)')
        decay = "dict(type='CosineAnnealingLR', by_epoch=True, T_max=max_epochs, eta_min=1e-5)"
    best = 'segm' if found.with_masks else 'bbox'
    return f'''\
train_cfg = dict(max_epochs=max_epochs, val_interval={interval})
optim_wrapper = dict({optimizer})
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end={first}),
    {decay}
]
auto_scale_lr = dict(base_batch_size=batch_size)
default_hooks = dict(checkpoint=dict(interval={interval}, max_keep_ckpts=1, save_best='coco/{best}_mAP'))
randomness = dict(seed=0)'''
