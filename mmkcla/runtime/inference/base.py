"""Base class of the predictors: the model with its weights, the test pipeline, the class names."""
import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import DATASETS, MODELS, VISUALIZERS, init_default_scope
from mmengine.visualization import Visualizer

from ...datasets.palettes import filled
from ...errors import UserError
from ...weights.addresses import read_address
from ...weights.matching import compare, require, state_dict_for
from ...weights.method_record import differences, require_same_method
from ..testing import PARTIAL_HINT
from .images import failure, make_upright, rgb, too_narrow
from .tta import innermost_dataset


class Predictor:
    """A model with its weights and the test pipeline of its config.

    Args:
        config: the config; its hosts must be imported already.
        checkpoint: path or http(s) URL of the weights.
        device: device of the model, e.g. ``cpu`` or ``cuda:0``.
        allow_partial: accept a checkpoint that matches the model only partially.

    Raises:
        UserError: the checkpoint cannot be read or does not match, or the config has no test pipeline.
    """

    visualizer_type = ''

    def __init__(self, config: Any, checkpoint: str, device: torch.device, allow_partial: bool = False) -> None:
        self.host = config.default_scope
        init_default_scope(config.default_scope)
        self.model = build_model(config)
        content = read_address(checkpoint)
        state_dict = state_dict_for(self.model, content)
        report = compare(self.model, state_dict)
        self.loaded = report.summary()
        require(report, 'some', checkpoint)
        if not allow_partial:
            require_same_method(differences(self.model, content), checkpoint, PARTIAL_HINT)
            require(report, 'all', checkpoint, PARTIAL_HINT)
        self.model.load_state_dict({name: value for name, value in state_dict.items()
                                    if name not in set(report.mismatched)}, strict=False)
        self.model.to(device).eval()
        dataset = innermost_dataset((config.get('test_dataloader') or {}).get('dataset') or {})
        if not dataset.get('pipeline'):
            raise UserError(f'config {config.filename} has no test_dataloader.dataset.pipeline, which is needed to '
                            'prepare images')
        loader, *rest = without_annotations(dataset['pipeline'])
        self.steps = self.preparation(rest)
        self.loader, self.prepare = Compose([loader]), Compose(self.steps)
        meta = dataset_meta(content, dataset, config.default_scope)
        self.classes: tuple[str, ...] = tuple(meta.get('classes') or ())
        self.palette = filled(meta.get('palette') or (), len(self.classes))
        self.visualizer = self.build_visualizer()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for predictions.json that apply to all images."""
        return {}

    def preparation(self, steps: list[dict]) -> list[dict]:
        """Return the steps of the test pipeline after loading; subclasses may modify them."""
        return steps

    def build_visualizer(self) -> Visualizer:
        """Build the host's visualizer without backends: it only draws, the command writes the files."""
        visualizer = VISUALIZERS.build(dict(type=self.visualizer_type, name=f'infer_{id(self)}'))
        visualizer.dataset_meta = dict(classes=self.classes, palette=self.palette)
        return visualizer

    def load(self, path: Path) -> tuple[np.ndarray, dict]:
        """Read an image; return its pixels for drawing (H×W×3, RGB, uint8) and the model input, both upright.

        Raises:
            UserError: the file cannot be read as an image.
        """
        results = self.loader(dict(img_path=str(path), img_id=0, reduce_zero_label=False))
        make_upright(results, path, self.loader.transforms[0])
        image = rgb(results['img'], path)
        try:
            return image, self.prepare(results)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # of the transforms, by what they do: OpenCV's, an assertion, a division by zero
            reason = too_narrow(image.shape[1::-1], self.steps) or failure(error)
            raise UserError(f'the test pipeline cannot process the image {path} ({image.shape[1]}×{image.shape[0]} '
                            f'pixels): {reason}') from error

    @torch.no_grad()
    def predict(self, batch: list[dict]) -> list[Any]:
        """Predict a batch; return the data samples of the host.

        Raises:
            UserError: the network does not support this image size, or its outputs are not finite.
        """
        return self.model.test_step(pseudo_collate(batch))

    def class_name(self, label: int) -> str:
        """Return the name of a class, or ``class_<label>`` if the names are unknown."""
        return self.classes[label] if label < len(self.classes) else f'class_{label}'

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """Convert the result to plain values: one dict per prediction."""
        raise NotImplementedError

    def files(self, sample: Any, folder: Path, stem: str) -> dict[str, Any]:
        """Write additional files named after ``stem`` to ``folder``; return their entries for predictions.json."""
        return {}

    def draw(self, image: np.ndarray, sample: Any) -> np.ndarray:
        """Draw the result on the image (H×W×3, RGB)."""
        self.visualizer.add_datasample('result', image, sample, draw_gt=False)
        return self.visualizer.get_image()


def build_model(config: Any) -> torch.nn.Module:
    """Build the model of a config for a single process, without downloading pretrained weights."""
    from mmengine.model import revert_sync_batchnorm
    model = copy.deepcopy(config.model)
    if config.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', config.data_preprocessor)
    return revert_sync_batchnorm(MODELS.build(model))


def without_annotations(pipeline: list[dict]) -> list[Any]:
    """Return the test pipeline for files without ground truth, with a loader that names unreadable files.

    If the data set provides images as arrays (CIFAR, digits), the pipeline has no loader; one is added, followed by a
    conversion to RGB, the channel order of these data sets.

    Raises:
        UserError: the pipeline does not start by loading an image file.
    """
    steps: list[Any] = [copy.deepcopy(step) for step in pipeline
                        if not re.search('Annotation|LoadBinaryMask', str(step.get('type')))]
    kinds = [str(step.get('type')) for step in steps]
    if not any('Load' in kind for kind in kinds):
        return [dict(type='mmkcla.LoadImageFromFile'), to_rgb, *steps]
    if not kinds[0].endswith('LoadImageFromFile'):
        raise UserError(f'the test pipeline starts with {kinds[0]}; inference on images needs LoadImageFromFile')
    steps[0]['type'] = 'mmkcla.LoadImageFromFile'
    return steps


def to_rgb(results: dict) -> dict:
    """Convert ``img`` from BGR, the channel order of the loaders, to RGB."""
    results['img'] = np.ascontiguousarray(results['img'][..., ::-1])
    return results


def dataset_meta(checkpoint: dict, dataset: dict, scope: str) -> dict:
    """Return class names and palette from the checkpoint, else from the config, else from the dataset class."""
    meta = (checkpoint.get('meta') or {}) if isinstance(checkpoint.get('meta'), dict) else {}
    found = meta.get('dataset_meta') or {}
    if found.get('classes'):
        return found
    metainfo = dict(dataset.get('metainfo') or {})
    if metainfo.get('classes') and not isinstance(metainfo['classes'], str):
        return metainfo
    kind = dataset.get('type')
    with DATASETS.switch_scope_and_registry(scope) as registry:
        return getattr(registry.get(kind) if isinstance(kind, str) else kind, 'METAINFO', {}) or {}
