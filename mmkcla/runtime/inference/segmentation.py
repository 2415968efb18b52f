"""Semantic segmentation with mmseg."""
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.logging import MMLogger
from torch import Tensor

from ...errors import UserError
from ...utils.text import note, one_line
from .base import Predictor
from .images import tinted, write_image
from .sliding import slide

PROBABILITY_STEPS = 65535  # maximum of a 16-bit greyscale image


@dataclass(frozen=True)
class Segmentation:
    """Prediction for an image, at its original size.

    Attributes:
        labels: (H, W); bool (foreground) for two classes, else class indices.
        probability: (H, W) float32; of the foreground for two classes, else of the predicted class.
    """

    labels: np.ndarray
    probability: np.ndarray


class SegmentationPredictor(Predictor):
    """Predictor for mmseg: a class per pixel; a foreground mask for two classes.

    Args:
        args: see :class:`Predictor`.
        threshold: pixels with a higher foreground probability are foreground; None: that of the head, or 0.5 for two
            output channels.
        window: side of the sliding windows, in pixels; the network then runs at the original resolution, without the
            resize of the pipeline. None: process the whole image with the test pipeline.
        stride: stride of the windows, in pixels; None: half a window.
        windows_at_once: windows per batch.
        with_probability: also write the probability map.
        kwargs: see :class:`Predictor`.

    Raises:
        UserError: a threshold is given for more than two classes, the test pipeline moves pixels, or the network does
            not support the window size.
    """

    visualizer_type = 'mmseg.SegLocalVisualizer'

    def __init__(self, *args: Any, threshold: float | None = None, window: int | None = None,
                 stride: int | None = None, windows_at_once: int = 1, with_probability: bool = False,
                 **kwargs: Any) -> None:
        self.window, self.windows_at_once = window, windows_at_once
        self.stride = stride or (max(1, window // 2) if window else None)
        self.with_probability = with_probability
        super().__init__(*args, **kwargs)
        self.two_classes = getattr(self.model, 'out_channels', 0) in (1, 2)
        self.threshold = self._threshold(args[0], threshold)
        # mmseg warns for each batch of a new image size
        MMLogger.get_current_instance().addFilter(
            lambda record: 'Image shapes are different in the batch' not in record.getMessage())
        if window:
            if not hasattr(self.model, 'encode_decode'):
                raise UserError(f'--slide needs an EncoderDecoder, but the model is {type(self.model).__name__}')
            channels = next(weight.shape[1] for weight in self.model.parameters() if weight.ndim == 4)
            self._run_windows([torch.zeros(channels, window, window, dtype=torch.uint8)])  # check the window size

    @property
    def settings(self) -> dict[str, Any]:
        """Threshold, windows, and the meaning of the values in the written files."""
        values = dict(mask_values='255 is foreground, 0 background' if self.two_classes else 'labels')
        if self.two_classes:
            values['threshold'] = self.threshold
        if self.with_probability:
            target = f'of the {self.class_name(1)}' if self.two_classes else 'of the predicted class'
            values['probability_values'] = f'probability {target} = value / {PROBABILITY_STEPS}'
        return values | (dict(window=self.window, stride=self.stride) if self.window else {})

    def preparation(self, steps: list[dict]) -> list[dict]:
        """Remove the resize for sliding windows; refuse steps that move pixels, as masks would not fit."""
        moving = r'Crop|Pad$|Rotat|TestTimeAug' + ('|Flip' if self.window else '')  # mmseg undoes flips of whole images
        for step in steps:
            if re.search(moving, str(step.get('type'))):
                raise UserError(f'the test pipeline contains {step["type"]}, which moves pixels; masks would not fit '
                                'the image; use a config whose test pipeline only resizes')
        return [step for step in steps if not (self.window and 'Resize' in str(step.get('type')))]

    @torch.no_grad()
    def predict(self, batch: list[dict]) -> list[Segmentation]:
        """Predict images of equal size together; with sliding windows, image by image."""
        if self.window:
            return [decide(slide(self._run_windows, data['inputs'], self.window, self.stride, self.windows_at_once,
                                 progress=True), self.threshold, probabilities=False) for data in batch]
        groups: dict[tuple, list[int]] = {}
        for number, data in enumerate(batch):
            groups.setdefault(tuple(data['inputs'].shape), []).append(number)
        results: dict[int, Segmentation] = {}
        for shape, numbers in groups.items():
            samples = self._checked(lambda data: self.model.test_step(pseudo_collate(data)),
                                    [batch[number] for number in numbers], shape)
            for number, sample in zip(numbers, samples, strict=True):
                if 'seg_logits' not in sample:
                    raise UserError(f'the model {type(self.model).__name__} returns labels without scores (seg_logits)')
                results[number] = decide(sample.seg_logits.data.float().cpu(), self.threshold)
        return [results[number] for number in range(len(batch))]

    def record(self, sample: Segmentation, folder: Path, stem: str) -> list[dict]:
        """Return one dict per class that occurs: label, class, pixels, and their share of the image."""
        labels, counts = np.unique(sample.labels, return_counts=True)
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, pixels=int(count),
                     share=round(int(count) / sample.labels.size, 6))
                for label, count in zip(labels, counts, strict=True)]

    def files(self, sample: Segmentation, folder: Path, stem: str) -> dict[str, Any]:
        """Write ``<stem>_mask.png`` (0 and 255, or labels) and optionally ``<stem>_probability.png`` (16-bit grey)."""
        labels = sample.labels
        entry: dict[str, Any] = dict(mask=f'{stem}_mask.png')
        if self.two_classes:
            entry['foreground_share'] = round(float(labels.mean()), 6)
            labels = labels.astype(np.uint8) * 255
        write_image(folder / entry['mask'], labels)
        if self.with_probability:
            entry['probability'] = f'{stem}_probability.png'
            write_image(folder / entry['probability'],
                        (sample.probability * PROBABILITY_STEPS).round().astype(np.uint16))
        return entry

    def draw(self, image: np.ndarray, sample: Segmentation) -> np.ndarray:
        """Tint and outline the foreground; for more than two classes, use mmseg's visualizer."""
        if self.two_classes:
            return tinted(image, sample.labels, self.palette[1] if len(self.palette) > 1 else (0, 200, 120))
        from mmengine.structures import PixelData
        from mmseg.structures import SegDataSample
        labels = torch.from_numpy(sample.labels.astype(np.int64))[None]
        return super().draw(image, SegDataSample(pred_sem_seg=PixelData(data=labels)))

    def _threshold(self, config: Any, wanted: float | None) -> float:
        if not self.two_classes:
            if wanted is not None:
                raise UserError(f'--threshold is for two classes; this model has '
                                f'{getattr(self.model, "num_classes", "more")} and predicts the most probable one')
            return 0.5
        if wanted is not None or self.model.out_channels == 2:
            return 0.5 if wanted is None else wanted
        heads, stated = self.model.decode_head, config.model.decode_head
        if isinstance(heads, torch.nn.ModuleList):  # cascade: the last head decides
            heads, stated = heads[-1], stated[-1]
        if stated.get('threshold') is None:
            note(f'the decode head of the config sets no threshold; using {heads.threshold}, the default of mmseg '
                 '(--threshold 0.5 overrides it)')
        return heads.threshold

    def _run_windows(self, windows: list[Tensor]) -> Tensor:
        """Return the logits of windows of equal size, ``(windows, K, side, side)``."""
        from mmseg.structures import SegDataSample
        side = windows[0].shape[-1]

        def run(windows: list[Tensor]) -> Tensor:
            samples = [SegDataSample(metainfo=dict(ori_shape=(side, side), img_shape=(side, side))) for _ in windows]
            data = self.model.data_preprocessor(dict(inputs=windows, data_samples=samples), False)
            logits = self.model.encode_decode(data['inputs'], [sample.metainfo for sample in data['data_samples']])
            return logits[..., :side, :side]  # the preprocessor pads at the right and bottom

        with torch.no_grad():
            return self._checked(run, windows, tuple(windows[0].shape))

    def _checked(self, run: Any, inputs: Any, shape: tuple[int, ...]) -> Any:
        """Run the network; convert mmseg's assertions on sizes to a UserError."""
        try:
            return run(inputs)
        except AssertionError as error:
            advice = ('choose another --slide' if self.window else
                      'set data_preprocessor.test_cfg=dict(size_divisor=16) or add a resize to the test pipeline')
            raise UserError(f'the network does not support {shape[-1]}×{shape[-2]} pixels '
                            f'({one_line(error)}); {advice}') from error


def decide(scores: Tensor, threshold: float, probabilities: bool = True) -> Segmentation:
    """Convert scores to labels and probabilities.

    Args:
        scores: ``(K, H, W)`` float32 on the CPU: logits, or for a single channel probabilities if ``probabilities`` (as
            in mmseg's data samples).
        threshold: see :class:`SegmentationPredictor`; unused for more than two channels.
        probabilities: whether the sigmoid of a single channel has been applied already.

    Raises:
        UserError: the scores are not finite.
    """
    if not bool(torch.isfinite(scores).all()):
        raise UserError('the network output is not finite (NaN or infinity): the training diverged, or the image is '
                        'too different from the training data; check the weights and the image')
    if len(scores) == 1:
        probability = scores[0] if probabilities else scores[0].sigmoid()
        labels = (probability > threshold).numpy()
    elif len(scores) == 2:
        margin = scores[1] - scores[0]  # identical to the argmax for threshold 0.5
        probability, labels = margin.sigmoid(), (margin > math.log(threshold / (1 - threshold))).numpy()
    else:
        best, choice = scores.max(0)
        probability = (best - scores.logsumexp(0)).exp().clamp(max=1)
        labels = choice.numpy().astype(np.uint8 if len(scores) <= 256 else np.uint16)
    return Segmentation(labels, probability.numpy())
