"""Facts about a config, and the cost of its model."""
from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

DATA = {'CIFAR10': 'CIFAR-10', 'CIFAR100': 'CIFAR-100', 'ImageNet': 'ImageNet-1k', 'CocoDataset': 'COCO',
        'ISIC2017Dataset': 'ISIC2017', 'ISIC2018Dataset': 'ISIC2018', 'KvasirSEGDataset': 'Kvasir-SEG',
        'SceneFlowDataset': 'Scene Flow'}
COLUMNS = ('config', 'input', 'parameters', 'macs', 'proposals', 'fingerprint')


@dataclass(frozen=True)
class Cost:
    """Parameters and MACs of a model for one image (stereo models: one pair). ``proposals`` is the number of regions in
    the second stage of a two-stage detector, else None."""

    parameters: int
    macs: int
    proposals: int | None = None


@dataclass(frozen=True)
class Facts:
    """Facts about a config: ``path`` relative to the root, data set, epochs, images per step over all GPUs, optimizer
    techniques, ``input`` shape without the batch, ``fingerprint`` of model and input."""

    path: Path
    data: str
    epochs: int
    batch_size: int
    techniques: tuple[str, ...]
    input: tuple[int, ...]
    fingerprint: str
    cost: Cost | None = None

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def input_text(self) -> str:
        return 'x'.join(map(str, self.input))


def facts_of(root: Path, path: Path) -> Facts:
    """Read the config ``path`` below ``root``, without building its model."""
    config = Config.fromfile(root / path)
    size = _input_of(config)
    model = json.dumps([config.model.to_dict(), size], sort_keys=True, default=str)
    return Facts(path, DATA[_type(config.train_dataloader.dataset)], config.train_cfg.max_epochs,
                 config.auto_scale_lr.base_batch_size, _techniques(config.optim_wrapper.optimizer), size,
                 hashlib.sha256(model.encode()).hexdigest()[:16])


def _type(part: dict) -> str:
    return part['type'].rsplit('.', 1)[-1]


def _techniques(optimizer: dict) -> tuple[str, ...]:
    name = 'SGD with Momentum' if optimizer['type'] == 'SGD' and optimizer.get('momentum') else optimizer['type']
    return (name, 'Weight Decay') if optimizer.get('weight_decay') else (name, )


def _input_of(config: Config) -> tuple[int, ...]:
    """Return the channels and size of training images, after the padding of the model's preprocessor."""
    sizes: list[Any] = []
    for step in config.train_dataloader.dataset.pipeline:
        size = step.get('crop_size') or step.get('size') or step.get('scale')
        if size is not None:  # a scale is (width, height)
            sizes.append((size, size) if isinstance(size, int) else size[::-1] if 'scale' in step else size)
    divisor = (config.model.get('data_preprocessor') or {}).get('pad_size_divisor', 1)
    height, width = (math.ceil(side / divisor) * divisor for side in sizes[-1])
    return (2, 3, height, width) if _is_stereo(config) else (3, height, width)


def _is_stereo(config: Config) -> bool:
    return _type(config.model) == 'EAPSMNet'


def measure(root: Path, facts: Facts) -> Cost:
    """Build the model and count parameters and MACs, like ``mmkcla analyse flops``."""
    from mmkcla.runtime.config import load_config
    from mmkcla.runtime.hosts import prepare_hosts
    config = load_config(str(root / facts.path), [])
    prepare_hosts(config)
    if _is_stereo(config):
        return _stereo_cost(config, facts.input)
    from mmkcla.analysis.flops import complexity
    result = complexity(config, facts.input[-2:])
    return Cost(result.parameters, result.macs, result.proposals)


def _stereo_cost(config: Config, size: tuple[int, ...]) -> Cost:
    import torch

    from mmkcla.analysis.count import MacCounter
    from mmkcla.analysis.subject import seeded_model
    model = seeded_model(config)
    with torch.no_grad(), MacCounter() as counter:
        model(torch.zeros(1, *size))
    return Cost(sum(parameter.numel() for parameter in model.parameters()), counter.macs)


def with_costs(facts: Iterable[Facts], known: dict[str, Cost]) -> list[Facts]:
    """Return the facts with their costs; None if the fingerprint is unknown."""
    return [replace(each, cost=known.get(each.fingerprint)) for each in facts]


def read_costs(path: Path) -> dict[str, Cost]:
    """Read costs by fingerprint; empty if there is no file."""
    if not path.exists():
        return {}
    with open(path, encoding='utf-8', newline='') as file:
        return {row['fingerprint']: Cost(int(row['parameters']), int(row['macs']),
                                         int(row['proposals']) if row['proposals'] else None)
                for row in csv.DictReader(file)}


def costs_text(facts: Iterable[Facts]) -> str:
    """Return the content of the file for :func:`read_costs`, with one row per config with known cost."""
    rows = [(each.name, each.input_text, each.cost.parameters, each.cost.macs, each.cost.proposals or '',
             each.fingerprint) for each in facts if each.cost is not None]
    return ''.join(','.join(map(str, row)) + '\n' for row in (COLUMNS, *rows))


def natural(facts: Facts) -> list[Any]:
    """Sort key that puts resnet20 before resnet110."""
    return [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', facts.name)]
