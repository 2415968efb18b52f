"""From image files to results that can be written down: one predictor a host, all with the same four steps.

``load`` reads and prepares an image, ``predict`` runs a batch, ``record`` tells a result as plain values for JSON, and
``draw`` paints it with the host's visualizer.
"""
import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import DATASETS, MODELS, VISUALIZERS, init_default_scope
from mmengine.visualization import Visualizer

from ..checkpoint import compare, read_checkpoint, state_dict_of
from ..engine.files import whole_file
from ..engine.runner import download, require
from ..errors import UserError
from .test import PARTIAL_HINT
from .tta import innermost_dataset

_COLOURS = ((220, 20, 60), (0, 130, 200), (60, 180, 75), (255, 225, 25), (145, 30, 180), (245, 130, 48),
            (70, 240, 240), (240, 50, 230), (128, 128, 0), (0, 0, 128))


_LEGIBLE = 640  # pixels of the longer side


class Predictor:
    """A model with its weights and the test pipeline of its config.

    Args:
        config: the config; its hosts are imported already.
        checkpoint: the weights: a path or an http address.
        device: where the model runs, as ``cpu`` or ``cuda:0``.
        score_threshold: detections with this score or less are left out.
        allow_partial: take a checkpoint that fits the model only in part.

    Raises:
        UserError: the checkpoint cannot be read or does not fit, or the config has no test pipeline.
    """

    visualizer_type = ''

    def __init__(self, config: Any, checkpoint: str, device: torch.device, score_threshold: float = 0.3,
                 allow_partial: bool = False) -> None:
        init_default_scope(config.default_scope)
        self.score_threshold = score_threshold
        self.model = build_model(config)
        content = read_checkpoint(download(checkpoint))
        state_dict = state_dict_of(content)
        report = compare(self.model, state_dict)
        self.loaded = report.summary()
        require(report, 'some' if allow_partial else 'all', checkpoint, PARTIAL_HINT)
        self.model.load_state_dict({name: value for name, value in state_dict.items()
                                    if name not in set(report.mismatched)}, strict=False)
        self.model.to(device).eval()
        dataset = innermost_dataset((config.get('test_dataloader') or {}).get('dataset') or {})
        if not dataset.get('pipeline'):
            raise UserError(f'config {config.filename} has no test_dataloader.dataset.pipeline, which says how an '
                            'image is prepared')
        self.loader, *rest = without_annotations(dataset['pipeline'])
        self.loader, self.prepare = Compose([self.loader]), Compose(rest)
        meta = dataset_meta(content, dataset, config.default_scope)
        self.classes: tuple[str, ...] = tuple(meta.get('classes') or ())
        self.palette = meta.get('palette')
        if len(self.palette or ()) != len(self.classes):  # a dataset with classes of its own keeps its parent's colours
            self.palette = [_COLOURS[number % len(_COLOURS)] for number in range(len(self.classes))]
        self.visualizer = self.build_visualizer()

    def build_visualizer(self) -> Visualizer:
        """The host's visualizer, without backends: it paints, the command writes."""
        visualizer = VISUALIZERS.build(dict(type=self.visualizer_type, name=f'infer_{id(self)}'))
        visualizer.dataset_meta = dict(classes=self.classes, palette=self.palette)
        return visualizer

    def load(self, path: Path) -> tuple[np.ndarray, dict]:
        """Read an image: its pixels for drawing (H×W×3, RGB, uint8), and what the model takes.

        Raises:
            UserError: the file cannot be read as an image.
        """
        results = self.loader(dict(img_path=str(path), img_id=0, reduce_zero_label=False))
        return rgb(results['img'], path), self.prepare(results)

    @torch.no_grad()
    def predict(self, batch: list[dict]) -> list[Any]:
        """The results of a batch, as the host's data samples."""
        return self.model.test_step(pseudo_collate(batch))

    def class_name(self, label: int) -> str:
        """The name of a class, or its number where the names are not known."""
        return self.classes[label] if label < len(self.classes) else f'class_{label}'

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """The result as plain values; files that belong to it go into ``folder`` under names with ``stem``."""
        raise NotImplementedError

    def draw(self, image: np.ndarray, sample: Any) -> np.ndarray:
        """The image (H×W×3, RGB) with the result painted on it."""
        self.visualizer.add_datasample('result', image, sample, draw_gt=False)
        return self.visualizer.get_image()


class DetectionPredictor(Predictor):
    """mmdet: boxes, and masks where the model has them."""

    visualizer_type = 'mmdet.DetLocalVisualizer'

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """A dict a detection: label, class, score, bbox [x1, y1, x2, y2] in pixels, mask as COCO's RLE."""
        found = sample.pred_instances
        found = found[found.scores > self.score_threshold].cpu()
        masks = [rle(np.asarray(mask)) for mask in found.masks] if 'masks' in found else None
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, score=round(float(score), 6),
                     bbox=[round(float(value), 3) for value in box], **({'mask': masks[i]} if masks else {}))
                for i, (label, score, box) in enumerate(zip(found.labels, found.scores, found.bboxes, strict=True))]

    def draw(self, image: np.ndarray, sample: Any) -> np.ndarray:
        """Boxes, names, scores, masks; a small image is enlarged, or the names would cover what they name."""
        times = max(1, _LEGIBLE // max(image.shape[:2]))
        if times > 1:
            image = image.repeat(times, 0).repeat(times, 1)
            sample = sample.clone()
            found = sample.pred_instances.cpu()
            found.bboxes = found.bboxes * times
            if 'masks' in found:
                found.masks = found.masks.repeat_interleave(times, 1).repeat_interleave(times, 2)
            sample.pred_instances = found
        self.visualizer.add_datasample('result', image, sample, draw_gt=False, pred_score_thr=self.score_threshold)
        return self.visualizer.get_image()


class SegmentationPredictor(Predictor):
    """mmseg: one class a pixel."""

    visualizer_type = 'mmseg.SegLocalVisualizer'

    def predict(self, batch: list[dict]) -> list[Any]:
        """One image at a time: mmseg does not batch images of different sizes in testing."""
        return [sample for data in batch for sample in super(SegmentationPredictor, self).predict([data])]

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """A dict a class that occurs, with its count of pixels; the labels themselves go to ``<stem>_mask.png``."""
        labels = sample.pred_sem_seg.data[0].cpu().numpy()
        write_image(folder / f'{stem}_mask.png', labels.astype(np.uint8 if labels.max() < 256 else np.uint16))
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, pixels=int(count),
                     mask=f'{stem}_mask.png')
                for label, count in zip(*np.unique(labels, return_counts=True), strict=True)]


class ClassificationPredictor(Predictor):
    """mmpretrain: scores of classes."""

    visualizer_type = 'mmpretrain.UniversalVisualizer'

    def record(self, sample: Any, folder: Path, stem: str) -> list[dict]:
        """The five best classes, best first."""
        scores, labels = sample.pred_score.cpu().topk(min(5, sample.pred_score.numel()))
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, score=round(float(score), 6))
                for score, label in zip(scores, labels, strict=True)]

    def draw(self, image: np.ndarray, sample: Any) -> np.ndarray:
        """The image with the best class written on it."""
        names = [self.class_name(label) for label in range(sample.pred_score.numel())]
        self.visualizer.visualize_cls(image, sample, classes=names, draw_gt=False)
        return self.visualizer.get_image()


PREDICTORS: dict[str, type[Predictor]] = {
    'mmdet': DetectionPredictor,
    'mmseg': SegmentationPredictor,
    'mmpretrain': ClassificationPredictor,
}


def build_model(config: Any) -> torch.nn.Module:
    """The model of a config on one process, without fetching pretrained weights."""
    from mmengine.model import revert_sync_batchnorm
    model = copy.deepcopy(config.model)
    if config.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', config.data_preprocessor)
    return revert_sync_batchnorm(MODELS.build(model))


def without_annotations(pipeline: list[dict]) -> list[dict]:
    """A test pipeline for files that have no ground truth, its loader naming what it cannot read.

    Raises:
        UserError: the pipeline does not start with the loading of an image file.
    """
    steps = [copy.deepcopy(step) for step in pipeline if 'Annotation' not in str(step.get('type'))]
    if not steps or not str(steps[0].get('type')).endswith('LoadImageFromFile'):
        first = steps[0].get('type') if steps else 'nothing'
        raise UserError(f'the test pipeline starts with {first}, not with LoadImageFromFile; images cannot be given')
    steps[0]['type'] = 'mmkcla.LoadImageFromFile'
    return steps


def dataset_meta(checkpoint: dict, dataset: dict, scope: str) -> dict:
    """Names and colours of the classes: the checkpoint's, else the config's, else its dataset class's."""
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


def rgb(image: np.ndarray, path: str | os.PathLike) -> np.ndarray:
    """A loaded image (H×W or H×W×C, BGR) as H×W×3 RGB bytes.

    Raises:
        UserError: it has neither 1, 3 nor 4 channels.
    """
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[2] not in (1, 3, 4):
        raise UserError(f'cannot draw on the image {path}: it has {image.shape[2]} channels')
    image = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image[..., 2::-1]
    if image.dtype != np.uint8:
        image = image.astype(np.float32)
        image = (image / max(float(image.max()) / 255, 1)).clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(image)


def rle(mask: np.ndarray) -> dict:
    """A mask (H×W) as COCO's compressed run-length code: ``{'size': [H, W], 'counts': str}``."""
    from pycocotools.mask import encode
    code = encode(np.asfortranarray(mask.astype(np.uint8)))
    return dict(size=[int(side) for side in code['size']], counts=code['counts'].decode('ascii'))


def write_image(path: Path, image: np.ndarray) -> None:
    """Write H×W or H×W×3 (RGB) pixels, whole, in the format of the path's suffix."""
    import cv2
    coded, data = cv2.imencode(path.suffix, image[..., ::-1] if image.ndim == 3 else image)
    if not coded:
        raise UserError(f'cannot write the picture {path}')
    with whole_file(path) as file:
        file.write(data.tobytes())
