"""PSMNet (Chang and Chen, arXiv 1803.08669) with optional Efficient Attention (arXiv 1812.01243)."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement, PixelData
from torch import Tensor

from ...errors import UserError
from ...registry import MODELS
from .cost_volume import concatenation_volume, soft_argmin, upsample_logits
from .feature_net import STRIDE

Samples = Sequence[BaseDataElement]


@MODELS.register_module()
class EAPSMNet(BaseModel):
    """Disparity of a rectified pair: shared features, concatenation volume, 3-D convolutions and soft-argmin.

    Images of any size are padded internally at the bottom and right, and the result is cropped. The loss of each output
    is the smooth L1 of its error in pixels, averaged over the valid pixels of the batch, 0 < d < ``max_disparity``.

    Args:
        max_disparity: exclusive upper bound of the disparities, in pixels; divisible by 4, with hourglasses by 16.
        feature_net: arguments of :class:`StereoFeatureNet` (including ``attention``).
        aggregation: arguments of :class:`HourglassAggregation`, or of another ``type`` such as
            ``'mmkcla.BasicAggregation'``.
        loss_weights: one weight per output of the aggregation. None: the published 0.5, 0.7 and 1 of PSMNet for three
            outputs, 1 for one output.
        data_preprocessor: usually a ``StereoDataPreprocessor``.
        init_cfg: see mmengine's ``BaseModel``.

    Raises:
        UserError: for an invalid disparity range or loss weights; in ``forward`` for inputs with another shape, and
            for samples without the required ground truth.
    """

    def __init__(self, max_disparity: int = 192, feature_net: dict | None = None, aggregation: dict | None = None,
                 loss_weights: Sequence[float] | None = None, data_preprocessor: dict | None = None,
                 init_cfg: dict | list | None = None) -> None:
        super().__init__(data_preprocessor, init_cfg)
        self.feature_net = MODELS.build({'type': 'mmkcla.StereoFeatureNet', **(feature_net or {})})
        self.aggregation = MODELS.build({'type': 'mmkcla.HourglassAggregation', **(aggregation or {}),
                                         'in_channels': 2 * self.feature_net.out_channels})
        self.divisor = STRIDE * self.aggregation.divisor
        if not isinstance(max_disparity, int) or max_disparity < 1 or max_disparity % self.divisor:
            raise UserError(f'EAPSMNet: max_disparity={max_disparity!r} must be a multiple of {self.divisor} for '
                            f'{type(self.aggregation).__name__}')
        self.max_disparity = max_disparity
        outputs = self.aggregation.num_outputs
        if loss_weights is None:
            loss_weights = {1: (1., ), 3: (0.5, 0.7, 1.)}.get(outputs)
        if loss_weights is None or len(loss_weights) != outputs:
            raise UserError(f'EAPSMNet: loss_weights={loss_weights} must be one number for each of the {outputs} '
                            f'outputs of {type(self.aggregation).__name__}')
        self.loss_weights = tuple(loss_weights)

    def forward(self, inputs: Tensor, data_samples: Samples | None = None, mode: str = 'tensor') -> Any:
        """Run the model in one of mmengine's three modes.

        Args:
            inputs: ``(B, 2, 3, H, W)``, left and right, normalised.
            data_samples: B samples. ``'loss'`` reads ``gt_disparity`` (``PixelData``, ``(1, h, w)``, in pixels; 0, NaN
                or infinity means unknown), ``'predict'`` reads ``img_shape`` from the metainfo.
            mode: ``'tensor'``: returns disparities ``(B, H, W)`` in pixels; ``'predict'``: returns the samples with
                ``pred_disparity`` ``(1, h, w)``; ``'loss'``: returns a dict with ``loss_disparity_<n>`` for each output
                and the end-point error ``epe`` of the last output for the log.
        """
        if inputs.dim() != 5 or inputs.shape[1:3] != (2, 3):
            raise UserError(f'EAPSMNet needs pairs of colour images (B, 2, 3, H, W), got {tuple(inputs.shape)}')
        if mode == 'tensor':
            return self.disparities(inputs)[-1]
        if mode == 'predict':
            return self._predict(inputs, data_samples)
        if mode == 'loss':
            return self._loss(inputs, data_samples)
        raise UserError(f'EAPSMNet: mode={mode!r} is unknown; choose one of: tensor, predict, loss')

    def disparities(self, inputs: Tensor) -> list[Tensor]:
        """Compute the disparities ``(B, H, W)`` in pixels: of all outputs in training mode, else of the last one."""
        height, width = inputs.shape[-2:]
        views = F.pad(inputs.flatten(0, 1), (0, -width % self.divisor, 0, -height % self.divisor))
        left, right = self.feature_net(views).unflatten(0, (-1, 2)).unbind(1)
        logits = self.aggregation(concatenation_volume(left, right, self.max_disparity // STRIDE))
        return [soft_argmin(upsample_logits(each, STRIDE)[..., :height, :width])
                for each in (logits if self.training else logits[-1:])]

    def _predict(self, inputs: Tensor, data_samples: Samples | None) -> Samples:
        if data_samples is None:
            data_samples = [BaseDataElement(metainfo=dict(img_shape=tuple(inputs.shape[-2:]))) for _ in inputs]
        for sample, disparity in zip(data_samples, self.disparities(inputs)[-1], strict=True):
            height, width = sample.metainfo.get('img_shape', disparity.shape)
            sample.pred_disparity = PixelData(data=disparity[None, :height, :width])
        return data_samples

    def _loss(self, inputs: Tensor, data_samples: Samples | None) -> dict[str, Tensor]:
        if len(data_samples or ()) != len(inputs):
            raise UserError(f"EAPSMNet: mode='loss' needs a data sample for each of the {len(inputs)} pairs, got "
                            f'{len(data_samples or ())}')
        truth = torch.stack([self._truth(sample, inputs.shape[-2:]) for sample in data_samples])
        valid = (truth > 0) & (truth < self.max_disparity)
        outputs = self.disparities(inputs)
        count = valid.sum()
        if not count:
            print_log(f'EAPSMNet: no disparity between 0 and {self.max_disparity} in this batch; its loss is 0: '
                      + ', '.join(str(sample.metainfo.get('left_path', '')) for sample in data_samples),
                      logger='current', level=logging.WARNING)
        pixels = count.clamp(min=1)
        losses = {}
        for number, (disparity, weight) in enumerate(zip(outputs, self.loss_weights, strict=True)):
            total = F.smooth_l1_loss(disparity[valid], truth[valid], reduction='sum')
            losses[f'loss_disparity_{number}'] = weight * total / pixels
        losses['epe'] = (outputs[-1].detach()[valid] - truth[valid]).abs().sum() / count  # NaN without valid pixels
        return losses

    @staticmethod
    def _truth(sample: BaseDataElement, size: Sequence[int]) -> Tensor:
        if 'gt_disparity' not in sample:
            raise UserError(f'EAPSMNet: the pair {sample.metainfo.get("left_path", "")} has no ground-truth disparity; '
                            'the pipeline needs mmkcla.LoadDisparity, and the data set a disparity file for it')
        truth = sample.gt_disparity.data[0]
        return F.pad(truth, (0, size[1] - truth.shape[1], 0, size[0] - truth.shape[0]))
