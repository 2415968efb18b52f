"""One config of every shipped family, with its widths divided by eight, on data of a few small images."""
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from PIL import Image
from stereo_data import SMALL, pair_folder
from tiny import CLASSES, write_coco

ROOT = Path(__file__).parents[2] / 'configs'
FAMILIES = {
    'cascade_rcnn': 'cascade-rcnn_r50-kcla_fpn_1x_coco', 'efficient_attention': 'mask-rcnn_r50-ea_fpn-ea_1x_coco',
    'faster_rcnn': 'faster-rcnn_r50-kcla_fpn_1x_coco', 'kcla_fpn': 'mask-rcnn_r50-kcla_kclafpn_1x_coco',
    'layer_attention_neck': 'mask-rcnn_r50_fpn-kcla_1x_coco', 'mask_rcnn': 'mask-rcnn_r50-kcla_fpn_1x_coco',
    'retinanet': 'retinanet_r50-kcla_fpn_1x_coco',
    'deeplabv3plus': 'deeplabv3plus_r50-kcla-d8_1xb8-300e_isic2018-256x256',
    'pspnet': 'pspnet_r50-kcla-d8_1xb8-300e_isic2018-256x256',
    'semantic_fpn': 'fpn_r50-kcla_kclafpn_1xb8-300e_isic2018-256x256',
    'unet': 'unet-kcla-small_1xb8-300e_isic2018-256x256', 'upernet': 'upernet_r50-ea_1xb8-300e_isic2018-256x256',
    'cifar': 'kcla-resnet20_1xb128-180e_cifar10',
    'cifar_ablations': 'kcla-dynamic-temperature-resnet56_1xb128-180e_cifar100',
    'imagenet': 'kcla-resnet50_8xb32_in1k', 'ea_psmnet': 'ea-psmnet_4xb3-10e_sceneflow',
    'demo': 'unet-kcla-small_coins'}
SIDE = 64
LABELS = 6  # of images; mmpretrain's evaluators read the first five
NARROW = 8  # what the widths are divided by


def write_families(folder: Path) -> list[str]:
    """Write ``<family>.py`` and the data they read; returns the names of the configs."""
    write_coco(folder / 'coco')
    _write_masks(folder / 'masks')
    for number in range(LABELS):
        (folder / 'classes' / str(number)).mkdir(parents=True)
        pixels = np.random.default_rng(number).integers(0, 40 * (number + 1), (32, 32, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / 'classes' / str(number) / '0.png')
    pair_folder(folder / 'pairs', names=('1', '2', '3'))
    for family, name in FAMILIES.items():
        config = Config.fromfile(ROOT / family / f'{name}.py').to_dict()
        kind = _KINDS[config['default_scope']]
        config['load_from'] = None
        for part in ('train', 'val', 'test'):
            config[f'{part}_dataloader'].update(batch_size=2, num_workers=0, persistent_workers=False)
        config['train_cfg'].update({
            key: 2 for key in ('max_epochs', 'max_iters', 'val_interval') if key in config['train_cfg']})
        if not family.startswith('cifar'):  # which are narrow
            _narrow(config['model'])
        kind(config)  # after the widths, since they name their own
        Config(config).dump(folder / f'{family}.py')
    return [f'{family}.py' for family in FAMILIES]


def _narrow(part: Any) -> None:
    """Divide widths; no pretrained weights. All heads keep their number of classes."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == 'init_cfg' and isinstance(value, dict) and value.get('type') == 'Pretrained':
                part[key] = None
            elif key.endswith('channels') and key != 'data_preprocessor':
                part[key] = _divided(value)
            else:
                _narrow(value)
        if str(part.get('type')).endswith('ResNet') and 'stage_channels' not in part:
            part.update(base_channels=64 // NARROW, stem_channels=64 // NARROW)
    elif isinstance(part, (list, tuple)):
        for value in part:
            _narrow(value)


def _divided(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_divided(each) for each in value]
    return value // NARROW if isinstance(value, int) and value >= 16 else value


def _sets(config: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> None:
    for part in ('train', 'val', 'test'):
        change(config[f'{part}_dataloader']['dataset'])


def _detection(config: dict[str, Any]) -> None:
    def change(data: dict[str, Any]) -> None:
        data.update(data_root='coco/', ann_file='ann.json', data_prefix=dict(img='images/'),
                    metainfo=dict(classes=CLASSES))
        for step in data['pipeline']:
            step.update(dict(scale=(SIDE, SIDE)) if step['type'] == 'Resize' else {})

    _sets(config, change)
    for part in ('val_evaluator', 'test_evaluator'):
        config[part]['ann_file'] = 'coco/ann.json'
    for head in _dicts(config['model']):
        if 'num_classes' in head:
            head['num_classes'] = len(CLASSES)


def _segmentation(config: dict[str, Any]) -> None:
    def change(data: dict[str, Any]) -> None:
        data.update(type='mmkcla.BinarySegDataset', data_root='masks')
        for step in data['pipeline']:
            step.update(dict(scale=(SIDE, SIDE)) if step['type'] == 'Resize' else {})

    _sets(config, change)
    config['model']['data_preprocessor']['size'] = (SIDE, SIDE)


def _classification(config: dict[str, Any]) -> None:
    def change(data: dict[str, Any]) -> None:
        steps = [step for step in data['pipeline'] if 'LoadImage' not in step['type']]
        for step in steps:
            step.update({key: 32 for key in ('scale', 'crop_size') if key in step})
        keep = {key: data[key] for key in ('metainfo', 'test_mode') if key in data}
        data.clear()
        data.update(type='CustomDataset', data_root='classes', pipeline=[
            dict(type='LoadImageFromFile', _scope_='mmkcla'), *steps], **keep)

    _sets(config, change)
    config['model']['head']['num_classes'] = LABELS
    if 'data_preprocessor' in config:
        config['data_preprocessor']['num_classes'] = LABELS


def _stereo(config: dict[str, Any]) -> None:
    def change(data: dict[str, Any]) -> None:
        steps = data['pipeline']
        for step in steps:
            step.update(dict(size=(32, 64)) if 'Crop' in step['type'] else {})
        data.clear()
        data.update(type='mmkcla.StereoPairDataset', data_root='pairs', pipeline=steps)

    _sets(config, change)
    config['model'].update({key: value for key, value in SMALL.items() if key not in ('type', 'aggregation')})
    config['model']['aggregation'].update(channels=8, stacks=3)


def _dicts(part: Any) -> list[dict[str, Any]]:
    inner = list(part.values()) if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else []
    return ([part] if isinstance(part, dict) else []) + [each for value in inner for each in _dicts(value)]


def _write_masks(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for split in ('train', 'val', 'test'):
        for kind in ('images', 'masks'):
            (folder / kind / split).mkdir(parents=True)
        for number in range(3):
            mask = np.zeros((SIDE, SIDE), np.uint8)
            mask[8:40, 12:40 + number] = 1
            image = rng.integers(0, 90, (SIDE, SIDE, 3)) + 90 * mask[..., None]
            Image.fromarray(mask).save(folder / 'masks' / split / f'{number}.png')
            Image.fromarray(image.astype(np.uint8)).save(folder / 'images' / split / f'{number}.png')


_KINDS = {'mmdet': _detection, 'mmseg': _segmentation, 'mmpretrain': _classification, 'mmengine': _stereo}
