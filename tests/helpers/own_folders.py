"""Folders of images and masks as people have them, made of crops of scikit-image's photographs."""
from pathlib import Path

import numpy as np
from medical_files import encode

from mmkcla.datasets.segmentation import samples

COUNT = 10


def crops(count: int = COUNT, photograph: str = 'ihc') -> list:
    """Crops with ``pixels`` (H, W, 3) and ``mask`` (H, W) bool, all different."""
    return samples._crops(photograph, {'train': count, 'val': 0, 'test': 0}, 0)['train']


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def own(root: Path, names: list[str], mask_name: str = '{}.png', image_end: str = '.jpg', scale: int = 255) -> Path:
    """``root/images`` and ``root/masks``; ``names`` may have folders, ``mask_name`` formats the last part."""
    for name, crop in zip(names, crops(len(names)), strict=True):
        folder, _, stem = name.rpartition('/')
        mask = f'{folder}/{mask_name.format(stem)}' if folder else mask_name.format(stem)
        kind = {'.jpg': 'JPEG', '.jpeg': 'JPEG', '.png': 'PNG', '.tif': 'TIFF', '.bmp': 'BMP'}[image_end.lower()]
        write(root / 'images', {f'{name}{image_end}': encode(crop.pixels, kind)})
        write(root / 'masks', {mask: encode(crop.mask * scale)})
    return root


def labels(crop) -> np.ndarray:
    """Three classes of a crop: not stained and dark, not stained and light, stained."""
    return np.where(crop.mask, 2, crop.pixels.mean(-1) > 160).astype(np.uint8)
