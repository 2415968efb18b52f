"""Small class folders, and the config of a classification on them."""
from pathlib import Path

import numpy as np
from mmengine.config import Config
from PIL import Image

CLASSES = ('apple', 'banana', 'cherry')


def write_classes(root: Path, classes: tuple[str, ...] = CLASSES, images: int = 2, seed: int = 0,
                  suffix: str = '.png') -> Path:
    """Write ``<class>/<number><suffix>`` of noise, 8×8; no two images are equal for one ``seed``."""
    rng = np.random.default_rng(seed)
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(images):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(root / name / f'{number}{suffix}')
    return root


def class_config(root: Path, train: dict | None = None, val: dict | None = None, classes: int = 3,
                 topk: tuple[int, ...] = (1,), head: dict | None = None) -> Config:
    """A config that trains on ``root/train`` and validates on ``root/val``."""
    def loader(split: str, more: dict | None) -> dict:
        return dict(dataset=dict(dict(type='CustomDataset', data_root=str(root), data_prefix=split), **(more or {})))
    return Config(dict(
        default_scope='mmpretrain', train_dataloader=loader('train', train), val_dataloader=loader('val', val),
        val_evaluator=dict(type='Accuracy', topk=topk),
        model=dict(type='ImageClassifier', head=dict(type='LinearClsHead', num_classes=classes, in_channels=8,
                                                     **(head or {})))))
