"""Segmentation with mmseg: one class a pixel."""
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

PROBABILITY_STEPS = 65535  # of a 16-bit grey image


@dataclass(frozen=True)
class Segmentation:
    """What is predicted for an image, at its size.

    Attributes:
        labels: (H, W), bool for two classes (the foreground), else the numbers of the classes.
        probability: (H, W) float32: of the foreground; of the chosen class for more than two.
    """

    labels: np.ndarray
    probability: np.ndarray


class SegmentationPredictor(Predictor):
    """mmseg: one class a pixel; for two classes a mask of the foreground.

    Args:
        args: of :class:`Predictor`.
        threshold: a foreground probability above it is foreground; None: the head's, or 0.5 for two channels.
        window: side of the windows in which the network runs at the image's own resolution, without the pipeline's
            resize; None: the whole image through the test pipeline.
        stride: from one window to the next; None: half a window.
        windows_at_once: batch of windows.
        with_probability: write the map of probabilities too.
        kwargs: of :class:`Predictor`.

    Raises:
        UserError: for a threshold and more than two classes; a test pipeline that moves pixels; windows that the
            network refuses.
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
        # one image after the other has another size; mmseg warns of each such batch
        MMLogger.get_current_instance().addFilter(
            lambda record: 'Image shapes are different in the batch' not in record.getMessage())
        if window:
            if not hasattr(self.model, 'encode_decode'):
                raise UserError(f'--slide needs an EncoderDecoder, and the model is a {type(self.model).__name__}')
            channels = next(weight.shape[1] for weight in self.model.parameters() if weight.ndim == 4)
            self._run_windows([torch.zeros(channels, window, window, dtype=torch.uint8)])  # does it take this size?

    @property
    def settings(self) -> dict[str, Any]:
        """The threshold, the windows, and what the values of the files mean."""
        values = dict(mask_values='255 is foreground, 0 background' if self.two_classes else 'labels')
        if self.two_classes:
            values['threshold'] = self.threshold
        if self.with_probability:
            whose = f'of the {self.class_name(1)}' if self.two_classes else 'of the chosen class'
            values['probability_values'] = f'probability {whose} = value / {PROBABILITY_STEPS}'
        return values | (dict(window=self.window, stride=self.stride) if self.window else {})

    def preparation(self, steps: list[dict]) -> list[dict]:
        """Without the resize if windows are asked for; no step may move pixels, or masks would not fit."""
        moving = r'Crop|Pad$|Rotat|TestTimeAug' + ('|Flip' if self.window else '')  # mmseg flips back whole images
        for step in steps:
            if re.search(moving, str(step.get('type'))):
                raise UserError(f'the test pipeline has {step["type"]}, after which masks do not lie on their images; '
                                'predict with a config whose test pipeline only resizes')
        return [step for step in steps if not (self.window and 'Resize' in str(step.get('type')))]

    @torch.no_grad()
    def predict(self, batch: list[dict]) -> list[Segmentation]:
        """Images whose prepared sizes are equal together, windows image by image."""
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
                    raise UserError(f'the model {type(self.model).__name__} gives labels without scores (seg_logits)')
                results[number] = decide(sample.seg_logits.data.float().cpu(), self.threshold)
        return [results[number] for number in range(len(batch))]

    def record(self, sample: Segmentation, folder: Path, stem: str) -> list[dict]:
        """A dict a class that occurs: label, class, pixels, and their share of the image."""
        labels, counts = np.unique(sample.labels, return_counts=True)
        return [dict(label=int(label), **{'class': self.class_name(int(label))}, pixels=int(count),
                     share=round(int(count) / sample.labels.size, 6))
                for label, count in zip(labels, counts, strict=True)]

    def files(self, sample: Segmentation, folder: Path, stem: str) -> dict[str, Any]:
        """``<stem>_mask.png``: 0 and 255, or labels; ``<stem>_probability.png`` if asked for: 16-bit grey."""
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
        """The foreground tinted and outlined; of more classes, mmseg's own picture."""
        if self.two_classes:
            return tinted(image, sample.labels, self.palette[1] if len(self.palette) > 1 else (0, 200, 120))
        from mmengine.structures import PixelData
        from mmseg.structures import SegDataSample
        labels = torch.from_numpy(sample.labels.astype(np.int64))[None]
        return super().draw(image, SegDataSample(pred_sem_seg=PixelData(data=labels)))

    def _threshold(self, config: Any, wanted: float | None) -> float:
        if not self.two_classes:
            if wanted is not None:
                raise UserError(f'--threshold cuts the foreground of two classes; this model has '
                                f'{getattr(self.model, "num_classes", "more")}, of which the most probable is taken')
            return 0.5
        if wanted is not None or self.model.out_channels == 2:
            return 0.5 if wanted is None else wanted
        heads, stated = self.model.decode_head, config.model.decode_head
        if isinstance(heads, torch.nn.ModuleList):  # a cascade: the last one decides
            heads, stated = heads[-1], stated[-1]
        if stated.get('threshold') is None:
            note(f'the decode head of the config states no threshold; {heads.threshold} is used, which is the default '
                 'of mmseg (--threshold 0.5 changes it)')
        return heads.threshold

    def _run_windows(self, windows: list[Tensor]) -> Tensor:
        """Logits of windows of one size, ``(windows, K, side, side)``."""
        from mmseg.structures import SegDataSample
        side = windows[0].shape[-1]

        def run(windows: list[Tensor]) -> Tensor:
            samples = [SegDataSample(metainfo=dict(ori_shape=(side, side), img_shape=(side, side))) for _ in windows]
            data = self.model.data_preprocessor(dict(inputs=windows, data_samples=samples), False)
            logits = self.model.encode_decode(data['inputs'], [sample.metainfo for sample in data['data_samples']])
            return logits[..., :side, :side]  # a preprocessor pads on the right and below

        with torch.no_grad():
            return self._checked(run, windows, tuple(windows[0].shape))

    def _checked(self, run: Any, inputs: Any, shape: tuple[int, ...]) -> Any:
        """Run the network; mmseg's assertions on sizes are for the user."""
        try:
            return run(inputs)
        except AssertionError as error:
            advice = ('another --slide' if self.window else
                      'data_preprocessor.test_cfg=dict(size_divisor=16) or a resize in the test pipeline')
            raise UserError(f'the network does not take {shape[-1]}×{shape[-2]} pixels '
                            f'({one_line(error)}); {advice} helps') from error


def decide(scores: Tensor, threshold: float, probabilities: bool = True) -> Segmentation:
    """From scores to labels.

    Args:
        scores: ``(K, H, W)`` float32 on the CPU; logits, but for one channel probabilities if ``probabilities`` (as
            mmseg's data samples have them).
        threshold: see :class:`SegmentationPredictor`; unused for more than two channels.
        probabilities: whether the sigmoid of a single channel is taken already.

    Raises:
        UserError: for values that are not finite.
    """
    if not bool(torch.isfinite(scores).all()):
        raise UserError('the network gives values that are not finite (NaN or infinity); its weights are of a training '
                        'that diverged, or the image is not what it was trained on')
    if len(scores) == 1:
        probability = scores[0] if probabilities else scores[0].sigmoid()
        labels = (probability > threshold).numpy()
    elif len(scores) == 2:
        margin = scores[1] - scores[0]  # at 0.5 the argmax, to the last bit
        probability, labels = margin.sigmoid(), (margin > math.log(threshold / (1 - threshold))).numpy()
    else:
        best, choice = scores.max(0)
        probability = (best - scores.logsumexp(0)).exp().clamp(max=1)
        labels = choice.numpy().astype(np.uint8 if len(scores) <= 256 else np.uint16)
    return Segmentation(labels, probability.numpy())
