"""Subjects of the analyses: the backbone of a config with its weights, and images from its test pipeline."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from mmengine.dataset import Compose, pseudo_collate
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from torch import Tensor, nn

from ..errors import UserError
from ..layers import LayerAttention
from ..runtime.config import load_config
from ..runtime.hosts import prepare_hosts
from ..runtime.inference.base import build_model, to_rgb, without_annotations
from ..runtime.inference.tta import innermost_dataset
from ..utils.text import one_line
from ..weights.addresses import read_address
from ..weights.matching import compare, require
from ..weights.method_record import differences, require_same_method
from ..weights.reading import state_dict_of
from .record import Stage, recording, split_stages

if TYPE_CHECKING:
    from mmengine.config import Config

RANDOM = 'random weights'
RANDOM_WEIGHTS = '-'  # in place of a checkpoint
_PACK = {'mmdet': 'PackDetInputs', 'mmseg': 'PackSegInputs', 'mmpretrain': 'PackInputs'}
_PREFIX = 'backbone.'


@dataclass
class Subject:
    """The model of a config, ready to run on images.

    ``label`` is its name in tables (the name of the config), and ``weights`` describes the origin of its weights.
    """

    label: str
    weights: str
    method: str
    model: nn.Module
    prepare: Callable[[Path], Tensor]

    @property
    def title(self) -> str:
        """Title for figures: config, method and origin of the weights."""
        return f'{self.label} ({self.method}, {self.weights})'

    @torch.no_grad()
    def stages(self, image: Path) -> list[Stage]:
        """Run the backbone on one image; what its layer attentions did, stage by stage.

        Raises:
            UserError: the image cannot be read, or the network cannot take it.
        """
        inputs = self.prepare(image)
        with recording(self.model.backbone) as calls:
            try:
                self.model.backbone(inputs)
            except RuntimeError as error:
                raise UserError(f'{self.label} cannot take {image} of {inputs.shape[2]}×{inputs.shape[3]} pixels: '
                                f'{one_line(error, 160)}; try another --size') from error
        return split_stages(calls)


def build_subject(config: Config, checkpoint: str | None, seed: int = 0, size: tuple[int, int] | None = None,
                  device: torch.device | str = 'cpu') -> Subject:
    """Build the model of ``config`` with the weights from ``checkpoint``, or random weights.

    Args:
        config: config with layer attention in its backbone, whose libraries are already imported.
        checkpoint: checkpoint of the model or of its backbone; None: random weights, without downloading the
            pretrained weights in the config.
        seed: seed of the random weights.
        size: (H, W) to resize images to; None: use the test pipeline of the config.
        device: device to run on.

    Raises:
        UserError: if the config has no backbone with layer attention, or the checkpoint does not fit the backbone.
    """
    name = config.filename
    model = seeded_model(config, seed)
    backbone = getattr(model, 'backbone', None)
    if backbone is None:
        raise UserError(f'the model of config {name} has no backbone ({type(model).__name__})')
    methods = {type(module).__name__: None for module in backbone.modules() if isinstance(module, LayerAttention)}
    if not methods:
        raise UserError(f'the backbone of config {name} has no layer attention; if its type supports one, add it with '
                        '--cfg-options model.backbone.layer_attention.type=KCLA')
    weights = f'{RANDOM}, seed {seed}'
    if checkpoint is not None:
        load_backbone(backbone, checkpoint)
        weights = Path(checkpoint).name
    model.to(device).eval()
    return Subject(Path(name).stem, weights, '/'.join(methods), model, image_preparation(config, model, size, device))


def build_subjects(names: Sequence[str], options: list[str], checkpoints: Sequence[str], seed: int,
                   size: tuple[int, int] | None, device: torch.device | str) -> list[Subject]:
    """Read several configs and build their models.

    Args:
        names: paths or names of configs.
        options: ``KEY=VALUE`` for all configs.
        checkpoints: one per config; :data:`RANDOM_WEIGHTS` for random weights.
        seed, size, device: see :func:`build_subject`.

    Raises:
        UserError: if two configs have the same name; see also :func:`build_subject`.
    """
    subjects: list[Subject] = []
    for name, checkpoint in zip(names, checkpoints, strict=True):
        config = load_config(name, options)
        if any(Path(config.filename).stem == subject.label for subject in subjects):
            raise UserError(f'two configs are named {Path(config.filename).stem}; rename one of them')
        prepare_hosts(config)
        subjects.append(build_subject(config, None if checkpoint == RANDOM_WEIGHTS else checkpoint, seed, size, device))
    return subjects


def seeded_model(config: Config, seed: int = 0) -> nn.Module:
    """Build the model of a config with its own random initialisation. Pretrained weights are not downloaded."""
    if config.get('model') is None:
        raise UserError(f"config {config.filename} has no 'model'")
    config = copy.deepcopy(config)
    _forget_pretrained(config.model)
    with torch.random.fork_rng(devices=[]), _quiet():
        init_default_scope(config.get('default_scope') or 'mmengine')
        torch.manual_seed(seed)
        model = build_model(config)
        if hasattr(model, 'init_weights'):
            model.init_weights()
    return model.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence mmengine, which logs the initialisation of every parameter and each change of the scope."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel('ERROR')
    try:
        yield
    finally:
        logger.setLevel(level)


def _forget_pretrained(part: Any) -> None:
    if isinstance(part, dict):
        init = part.get('init_cfg')
        if init is not None:
            rules = init if isinstance(init, (list, tuple)) else [init]
            part['init_cfg'] = [rule for rule in rules if rule.get('type') != 'Pretrained'] or None
        if part.get('pretrained') is not None:
            part['pretrained'] = None
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for entry in part:
            _forget_pretrained(entry)


def load_backbone(backbone: nn.Module, checkpoint: str) -> None:
    """Load the weights of a backbone from its own checkpoint or that of the complete model.

    Raises:
        UserError: if the file cannot be read, or does not contain all weights of the backbone.
    """
    content = read_address(checkpoint)
    weights = state_dict_of(content)
    below = {name.removeprefix(_PREFIX): value for name, value in weights.items() if name.startswith(_PREFIX)}
    report = compare(backbone, below or weights)
    require(report, 'some', checkpoint)
    require_same_method(differences(backbone, content, _PREFIX if below else ''), checkpoint)
    require(report, 'all', checkpoint, '; the analysis needs all weights of the backbone')
    backbone.load_state_dict(below or weights, strict=False)  # strict would want step counters that old files lack


def image_preparation(config: Config, model: nn.Module, size: tuple[int, int] | None,
                      device: torch.device | str) -> Callable[[Path], Tensor]:
    """Return a function from an image file to the input of the backbone, ``(1, 3, H, W)``.

    It runs the test pipeline of the config, or loads and resizes to ``size``, and then the model's data preprocessor.
    """
    scope = config.get('default_scope')
    dataset = innermost_dataset((config.get('test_dataloader') or {}).get('dataset') or {})
    steps = without_annotations(dataset['pipeline']) if dataset.get('pipeline') else []
    if size is None:
        if not steps:
            raise UserError(f'config {config.filename} has no test_dataloader.dataset.pipeline to prepare images; '
                            'use --size')
    elif scope not in _PACK:
        raise UserError(f'config {config.filename} has default_scope={scope!r}; use mmdet, mmseg or mmpretrain')
    else:
        keys = ('img_path', 'ori_shape', 'img_shape', 'scale_factor')
        steps = [dict(type='mmkcla.LoadImageFromFile'), *(step for step in steps if step is to_rgb),
                 dict(type='Resize', scale=size[::-1], keep_ratio=False), dict(type=_PACK[scope], meta_keys=keys)]
    pipeline = Compose(steps)

    def prepare(path: Path) -> Tensor:
        data = pipeline(dict(img_path=str(path), img_id=0, reduce_zero_label=False))
        inputs = model.data_preprocessor(pseudo_collate([data]), False)['inputs']
        return (inputs if isinstance(inputs, Tensor) else torch.stack(list(inputs))).to(device)

    return prepare


def each_image(subject: Subject, images: list[Path]) -> Iterator[tuple[Path, list[Stage]]]:
    """Run a subject on each image, with a progress bar on a terminal."""
    from tqdm import tqdm
    for image in tqdm(images, desc=subject.label, unit='image', disable=None, leave=False):
        yield image, subject.stages(image)
