"""The text of a classifier's config."""
from __future__ import annotations

from pathlib import Path

from ..errors import UserError
from ..utils.text import plural
from . import rules
from .config_text import comment, header, image_loader, names, setting, source
from .detection_config import IMAGENET
from .fingerprint import ClassificationFingerprint
from .machine import Machine
from .rules import Setting

SMALL_IMAGE = 64  # up to this shorter side a CIFAR ResNet
_IMBALANCED = 3


def config_text(found: ClassificationFingerprint, root: Path, machine: Machine, size: str | None,
                pretrained: bool | None) -> str:
    """The config ``kcla.py`` of a classification project."""
    side = rules.classification_size(found.images.shorter, machine)
    tiny = found.images.shorter['50'] <= SMALL_IMAGE
    network = _network(tiny, machine, size)
    start = _start(tiny, pretrained)
    trained = found.splits['train']
    batch = rules.batch_size(machine, side.value ** 2, network.value, trained, 128 if tiny else 64, least=16)
    lr = rules.learning_rate(3e-3, 64, batch.value, 'AdamW of configs/demo')
    if start.value:
        lr = rules.learning_rate(1e-3, 64, batch.value, 'AdamW, a third of that from scratch')
    length = rules.epochs(trained, batch.value, *((3000, 16, 180) if tiny or not machine.gpu else (10000, 20, 100)))
    flip = found.images.channels.get('1', 0) * 2 < found.images.count
    parts = [
        header('classification', f'{plural(sum(found.splits.values()), "image")} in {root}', str(machine)),
        _bases(network.value), '', f'data_root = {source(root.as_posix() + "/")}',
        "annotations = '{{ fileDirname }}/annotations/'  # lists of image and label beside this file",
        comment('the names of the class folders in order; head and preprocessor count them'),
        names('classes', found.classes), setting('image_size', side), setting('batch_size', batch), setting('lr', lr),
        setting('max_epochs', length), setting('topk', _topk(len(found.classes))), '',
        comment(f'{network.reason}. {start.reason}'), _model(network.value, start.value),
        _normalisation(found, start), '',
        _data(found, tiny, flip, machine), '', _schedule(found, length.value, batch.value)]
    return '\n'.join(parts) + '\n'


def _network(tiny: bool, machine: Machine, size: str | None) -> Setting:
    if tiny:
        return Setting('cifar20', f'ResNet-20 for small images: their median shorter side is at most {SMALL_IMAGE} px')
    chosen = rules.network_size(machine, size)
    depth = 50 if chosen.value == 'base' else 18
    return Setting(f'resnet{depth}', f'ResNet-{depth}: {chosen.reason}')


def _start(tiny: bool, pretrained: bool | None) -> Setting:
    if tiny and pretrained:
        raise UserError(f'--pretrained: the network for images of up to {SMALL_IMAGE} px has no ImageNet weights')
    if tiny:
        return Setting(False, 'From scratch: there are no ImageNet weights of it')
    if pretrained is False:
        return Setting(False, 'From scratch (--no-pretrained)')
    return Setting(True, 'ImageNet weights of torchvision, downloaded at the first start (else plan with '
                   '--no-pretrained); layer_scale_init=0 makes KCLA start as the plain network')


def _topk(classes: int) -> Setting:
    return (Setting((1, 5), 'the five best too') if classes > 5
            else Setting((1,), f'the five best of {classes} classes would always be right'))


def _bases(network: str) -> str:
    if network == 'cifar20':
        return "_base_ = 'mmpretrain::_base_/default_runtime.py'"
    return f"_base_ = ['mmpretrain::_base_/models/{network}.py', 'mmpretrain::_base_/default_runtime.py']"


def _model(network: str, pretrained: bool) -> str:
    if network == 'cifar20':
        return '''\
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmkcla.CifarLayerAttentionResNet', depth=20, layer_attention=dict(type='KCLA', drop_path=0.)),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead', num_classes=len(classes), in_channels=256, topk=topk,
        loss=dict(type='CrossEntropyLoss')))'''
    attention = "dict(type='KCLA', layer_scale_init=0.)" if pretrained else "dict(type='KCLA')"
    weights = f",\n        init_cfg=dict(type='Pretrained', checkpoint='torchvision://{network}')" if pretrained else ''
    return f'''\
model = dict(
    backbone=dict(
        type='mmkcla.LayerAttentionResNet', layer_attention={attention}{weights}),
    head=dict(num_classes=len(classes), topk=topk))'''


def _normalisation(found: ClassificationFingerprint, start: Setting) -> str:
    mean, std = IMAGENET if start.value else (found.images.mean, found.images.std)
    reason = "mean and deviation: ImageNet's, as of the weights" if start.value else "mean and deviation: the images'"
    return setting('data_preprocessor', Setting(None, reason),
                   f'dict(\n    num_classes=len(classes), mean={mean}, std={std}, to_rgb=True)')


def _data(found: ClassificationFingerprint, tiny: bool, flip: bool, machine: Machine) -> str:
    mirror = ("    dict(type='RandomFlip', prob=0.5, direction='horizontal'),  # leave it out where left and right "
              'differ\n' if flip else '    # grey images may be characters: none is mirrored; add RandomFlip where it '
              'keeps the class\n')
    if tiny:
        train = f'''\
    dict(type='Resize', scale=(image_size, image_size)),
    dict(type='RandomCrop', crop_size=image_size, padding=image_size // 8),
{mirror}'''
        test = "dict(type='Resize', scale=(image_size, image_size))"
    else:
        train = f"    dict(type='RandomResizedCrop', scale=image_size),\n{mirror}"
        test = ("dict(type='ResizeEdge', scale=image_size * 8 // 7, edge='short'),\n"
                "    dict(type='CenterCrop', crop_size=image_size)")
    load = image_loader(found.images)
    metrics = "dict(type='Accuracy', topk=topk)"
    if found.imbalance >= _IMBALANCED:
        metrics += ", dict(type='SingleLabelMetric')"
    final = (_loader('test') if 'test' in found.splits else
             '# no test folder: the result is of the images that the best checkpoint is chosen on\n'
             'test_dataloader = val_dataloader')
    return f'''\
train_pipeline = [
    {load},
{train}    dict(type='PackInputs')
]
test_pipeline = [
    {load}, {test}, dict(type='PackInputs')
]
{setting('workers', rules.workers(machine))}
loader = dict(batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0)
data = dict(type='CustomDataset', data_root=data_root, classes=classes)
{_loader('train')}
{_loader('val')}
{final}
val_evaluator = [{metrics}]
test_evaluator = val_evaluator'''


def _loader(split: str) -> str:
    training = split == 'train'
    pipeline = 'train_pipeline' if training else 'test_pipeline'
    return f'''\
{split}_dataloader = dict(
    sampler=dict(type='DefaultSampler', shuffle={training}),
    dataset=dict(ann_file=annotations + '{split}.txt', pipeline={pipeline}, **data), **loader)'''


def _schedule(found: ClassificationFingerprint, length: int, batch: int) -> str:
    first = rules.warmup(length * -(-found.splits['train'] // batch))
    interval = max(1, length // 20)
    best = 'single-label/f1-score' if found.imbalance >= _IMBALANCED else 'accuracy/top1'
    reason = (f'{found.imbalance:.3g} times as many images in the largest class as in the smallest'
              if found.imbalance >= _IMBALANCED else 'the classes are of similar size')
    return f'''\
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval={interval})
val_cfg, test_cfg = dict(), dict()
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=lr, weight_decay=1e-2))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end={first}),
    dict(type='CosineAnnealingLR', by_epoch=True, T_max=max_epochs, eta_min=1e-5)
]
auto_scale_lr = dict(base_batch_size=batch_size)
# {reason}
default_hooks = dict(checkpoint=dict(interval={interval}, max_keep_ckpts=1, save_best='{best}', rule='greater'))
randomness = dict(seed=0)'''
