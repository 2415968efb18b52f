"""Small folders of images and masks, and the config of a segmentation on them."""
from pathlib import Path

import numpy as np
from mmengine.config import Config
from PIL import Image

SHAPE = (12, 16)  # height, width


def write_pairs(root: Path, labels: tuple[int, ...] = (0, 1, 2), images: int = 3, split: str = 'train',
                suffixes: tuple[str, str] = ('.png', '.png'), seed: int = 0, dtype: type = np.uint8) -> Path:
    """Write ``images/<split>`` and ``masks/<split>``: noise, and masks in vertical stripes of the labels."""
    rng = np.random.default_rng(seed)
    for name in ('images', 'masks'):
        (root / name / split).mkdir(parents=True, exist_ok=True)
    mask = np.broadcast_to(np.array(labels)[np.arange(SHAPE[1]) * len(labels) // SHAPE[1]], SHAPE).astype(dtype)
    for number in range(images):
        pixels = rng.integers(0, 256, (*SHAPE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / 'images' / split / f'{number}{suffixes[0]}')
        Image.fromarray(mask).save(root / 'masks' / split / f'{number}{suffixes[1]}')
    return root


def seg_config(root: Path, classes: tuple[str, ...] | None = ('sky', 'tree', 'road'), split: str = 'train',
               loader: dict | None = None, image_loader: dict | None = None, head: dict | None = None,
               **more: object) -> Config:
    """A config whose ``<split>_dataloader`` reads ``root``; ``more`` are arguments of the data set."""
    part = dict(type='BaseSegDataset', data_root=str(root), img_suffix='.png',
                data_prefix=dict(img_path=f'images/{split}', seg_map_path=f'masks/{split}'),
                pipeline=[image_loader or dict(type='LoadImageFromFile'), loader or dict(type='LoadAnnotations'),
                          dict(type='PackSegInputs')]) | more
    if classes is not None:
        part['metainfo'] = dict(classes=classes)
    number = len(classes or ()) or 3
    return Config({
        'default_scope': 'mmseg', f'{split}_dataloader': dict(dataset=part),
        f'{split}_evaluator': dict(type='IoUMetric'),
        'model': dict(type='EncoderDecoder', decode_head=dict(type='FCNHead', num_classes=number, **(head or {})))})
