"""The text of a U-Net's config."""
from __future__ import annotations

from ..datasets.sheet import colour
from ..errors import UserError
from ..paths import configs_root
from ..utils.text import plural
from . import rules
from .config_text import comment, header, image_loader, names, setting
from .detection_config import IMAGENET
from .fingerprint import SegmentationFingerprint
from .machine import Machine
from .rules import Setting


def config_text(found: SegmentationFingerprint, source: str, suffix: str, machine: Machine, size: str | None,
                pretrained: bool | None) -> str:
    """The config ``kcla.py`` of a segmentation project.

    Args:
        found: about the data.
        source: where they are from, for people.
        suffix: of the prepared images.
        machine, size, pretrained: see :func:`mmkcla.plan.segmentation.plan`.
    """
    network = rules.network_size(machine, size)
    base = network.value == 'base'
    start = _start(base, pretrained)
    unet = 'unet_r34' if base else 'unet_small'
    side = rules.segmentation_size(found.images.width, found.images.height, machine)
    trained = found.splits['train']
    batch = rules.batch_size(machine, side.value[0] * side.value[1], unet.replace('_', '-'), trained,
                             16 if machine.gpu else 8)
    lr = rules.learning_rate(1e-3, 8, batch.value, 'AdamW of configs/unet')
    length = rules.epochs(trained, batch.value, *((20000, 50, 300) if base else (2000, 30, 300)))
    binary = len(found.classes) == 2 and not found.ignored
    parts = [
        header('segmentation', f'{plural(sum(found.splits.values()), "image")} in {source}', str(machine)),
        _bases(unet, binary), '', "data_root = '{{ fileDirname }}/data'  # prepared images and masks beside this file",
        comment('in the order of the labels; the decode head counts them'), names('classes', found.classes),
        setting('image_size', side), setting('batch_size', batch), setting('lr', lr), setting('max_epochs', length), '',
        comment(f'{network.value} network: {network.reason}. {start.reason}'),
        _model(found, binary, base, start.value), '', _pipelines(found, binary),
        setting('workers', rules.workers(machine)), _data(found, binary, suffix), '',
        _schedule(found, binary, length.value, batch.value)]
    return '\n'.join(parts) + '\n'


def _bases(unet: str, binary: bool) -> str:
    if configs_root() is None:
        raise UserError("mmkcla's configs are not installed: reinstall the package, or work in its checkout")
    files = [f'models/{unet}', *(['datasets/binary_seg_256x256'] if binary else []), 'schedules/adamw_300e',
             'seg_runtime']
    return '\n'.join([comment("of the installed mmkcla, wherever this file is"),
                      '_base_ = [__import__(\'mmkcla\').config_file(f\'_base_/{name}.py\') for name in (',
                      f'    {", ".join(repr(file) for file in files)})]'])


def _start(base: bool, pretrained: bool | None) -> Setting:
    if not base and pretrained:
        raise UserError('--pretrained: there are no ImageNet weights of the small network; --size base has some')
    if not base:
        return Setting(False, 'From scratch: there are no ImageNet weights of it')
    if pretrained is False:
        return Setting(False, 'From scratch (--no-pretrained)')
    return Setting(True, 'ImageNet weights of torchvision, downloaded at the first start (else plan with '
                   '--no-pretrained); layer_scale_init=0 makes KCLA start as the plain network')


def _model(found: SegmentationFingerprint, binary: bool, base: bool, pretrained: bool) -> str:
    attention = ("dict(type='KCLA', head_channels=16, layer_scale_init=0.)" if pretrained
                 else "dict(type='KCLA', head_channels=16, drop_path=0.)")
    weights = '' if pretrained or not base else ', init_cfg=None'
    mean, std = IMAGENET if pretrained else (found.images.mean, found.images.std)
    head = '' if binary else '''
    decode_head=dict(
        num_classes=len(classes), out_channels=len(classes), threshold=None,
        loss_decode=[dict(type='CrossEntropyLoss', avg_non_ignore=True)]),'''
    return f'''\
model = dict(
    # mean and deviation: {"ImageNet's, as of the weights" if pretrained else "the images' own"}; size is height, width
    data_preprocessor=dict(mean={mean}, std={std}, size=image_size[::-1]),{head}
    backbone=dict(layer_attention={attention}{weights}))'''


def _pipelines(found: SegmentationFingerprint, binary: bool) -> str:
    load = image_loader(found.images, always=True)
    if binary:
        first = {name: f'{name}_pipeline[0] = {load}\n' if 'bits' in load else '' for name in ('train', 'test', 'tta')}
        return f'''\
resize = dict(type='Resize', scale=image_size, keep_ratio=False)
train_pipeline = _base_.train_pipeline  # load, resize, mirror both ways, rotate: leave out what your images never show
{first['train']}train_pipeline[2] = resize
test_pipeline = _base_.test_pipeline
{first['test']}test_pipeline[1] = resize
tta_pipeline = _base_.tta_pipeline
{first['tta']}tta_pipeline[1]['transforms'][0] = [resize]'''
    return f'''\
resize = dict(type='Resize', scale=image_size, keep_ratio=False)
train_pipeline = [
    {load}, dict(type='LoadAnnotations'), resize,
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),  # leave it out where left and right differ
    dict(type='PackSegInputs')
]
test_pipeline = [
    {load}, resize, dict(type='LoadAnnotations'), dict(type='PackSegInputs')
]'''


def _data(found: SegmentationFingerprint, binary: bool, suffix: str) -> str:
    final = 'test' if 'test' in found.splits else 'val'
    said = '' if final == 'test' else ('# no test images: the result is of the images that the best checkpoint is '
                                       'chosen on\n')
    if binary:
        loaders = [f'''\
{name}_dataloader = dict(
    batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0,
    dataset=dict(split='{split}', pipeline={'train' if name == 'train' else 'test'}_pipeline, **data))'''
                   for name, split in (('train', 'train'), ('val', 'val'), ('test', final))]
        return '\n'.join(["data = dict(type='mmkcla.BinarySegDataset', data_root=data_root, "
                          'metainfo=dict(classes=classes))', *loaders[:2], f'{said}{loaders[2]}'])
    palette = [list(colour(label)) for label in range(len(found.classes))]
    loaders = [f'''\
{name}_dataloader = dict(
    sampler=dict(type='DefaultSampler', shuffle={name == 'train'}),{' drop_last=True,' if name == 'train' else ''}
    dataset=dict(
        data_prefix=dict(img_path='images/{split}', seg_map_path='masks/{split}'),
        pipeline={'train' if name == 'train' else 'test'}_pipeline, **data), **loader)'''
               for name, split in (('train', 'train'), ('val', 'val'), ('test', final))]
    return '\n'.join([
        'loader = dict(batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0)', 'data = dict(',
        f"    type='BaseSegDataset', data_root=data_root, img_suffix={suffix!r}, seg_map_suffix='.png',",
        *_palette(palette), *loaders[:2], f'{said}{loaders[2]}',
        "val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU', 'mDice'])", 'test_evaluator = val_evaluator'])


def _palette(colours: list[list[int]]) -> list[str]:
    line = f'    metainfo=dict(classes=classes, palette={colours}))'
    if len(line) <= 120:
        return [line]
    rows = [', '.join(map(str, colours[start:start + 6])) for start in range(0, len(colours), 6)]
    return ['    metainfo=dict(classes=classes, palette=[', *(f'        {row},' for row in rows), '    ]))']


def _schedule(found: SegmentationFingerprint, binary: bool, length: int, batch: int) -> str:
    first = rules.warmup(length * -(-found.splits['train'] // batch))
    interval = max(1, length // 20)
    best = 'DSC_pooled' if binary else 'mIoU'
    return f'''\
train_cfg = dict(max_epochs=max_epochs, val_interval={interval})
optim_wrapper = dict(optimizer=dict(lr=lr))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end={first}),
    dict(type='CosineAnnealingLR', by_epoch=True, T_max=max_epochs, eta_min=1e-5)
]
auto_scale_lr = dict(base_batch_size=batch_size)
default_hooks = dict(checkpoint=dict(interval={interval}, save_best='{best}', rule='greater'))'''
