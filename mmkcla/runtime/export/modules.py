"""Models that take plain images: channel order and normalisation are part of the module."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UserError
from ..inference.base import Predictor, to_rgb

PARTS = ('model', 'features')


class ImageModel(nn.Module):
    """A model of a host from images to plain tensors.

    Input: ``(B, C, H, W)`` float32 with values 0 to 255, RGB for three channels, already resized as in the test
    pipeline. Mean, standard deviation and channel order of the model's data preprocessor are applied inside.

    Args:
        predictor: the model with its weights and test pipeline.
        part: ``'model'``, or ``'features'`` for backbone and neck.

    Outputs:
        * classification: probabilities ``(B, K)``;
        * segmentation: probabilities ``(B, K, H, W)``, for one output channel of the foreground ``(B, 1, H, W)``;
        * features: the maps of ``extract_feat``, one output per level.

    Raises:
        UserError: the complete model cannot be exported.
    """

    def __init__(self, predictor: Predictor, part: str = 'model') -> None:
        super().__init__()
        self.model = predictor.model
        preprocessor = self.model.data_preprocessor
        mean, std = getattr(preprocessor, 'mean', None), getattr(preprocessor, 'std', None)
        if not getattr(preprocessor, '_enable_normalize', False) or mean is None:
            mean, std = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
        self.register_buffer('mean', mean.detach().clone().view(1, -1, 1, 1))
        self.register_buffer('std', std.detach().clone().view(1, -1, 1, 1))
        self.channels = in_channels(self.model)
        self.reversed_order = self.channels == 3 and loads_rgb(predictor) == converts_order(preprocessor)
        host = predictor.host
        self.kind = 'features' if part == 'features' else {
            'mmpretrain': 'classification', 'mmseg': 'segmentation'}.get(host, '')
        if not self.kind:
            raise UserError(f'{type(self.model).__name__} selects its boxes in Python, a different number for each '
                            'image, which neither format can hold; export its backbone and neck with --part features')
        if self.kind == 'classification' and not getattr(self.model, 'with_head', False):
            raise UserError(f'{type(self.model).__name__} has no head; use --part features')
        self.size_divisor = size_divisor(self.model)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Compute the outputs; see the class."""
        if self.reversed_order:
            images = images.flip(1)
        images = (images - self.mean) / self.std
        if self.kind == 'features':
            features = self.model.extract_feat(images)
            return tuple(features) if isinstance(features, (tuple, list)) else features
        if self.kind == 'classification':
            return self._activation()(self.model.head(self.model.extract_feat(images)))
        logits = self.model(images, mode='tensor')
        logits = F.interpolate(logits, size=images.shape[2:], mode='bilinear', align_corners=self.model.align_corners)
        return logits.sigmoid() if self.model.out_channels == 1 else logits.softmax(1)

    def _activation(self) -> Callable[[Tensor], Tensor]:
        from mmpretrain.models.heads import MultiLabelClsHead
        several = isinstance(self.model.head, MultiLabelClsHead)
        return torch.sigmoid if several else lambda scores: scores.softmax(1)

    def output_names(self, count: int) -> list[str]:
        """Names of the outputs."""
        return [f'feature_{level}' for level in range(count)] if self.kind == 'features' else ['probabilities']


def in_channels(model: nn.Module) -> int:
    """Channels of the images that a model takes."""
    return next((module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d)), 3)


def loads_rgb(predictor: Predictor) -> bool:
    """Whether the images of the test pipeline are RGB before the data preprocessor; loaders return BGR by default."""
    loader = predictor.loader.transforms[0]
    return to_rgb in predictor.steps or getattr(loader, 'color_type', '') == 'color_rgb' \
        or getattr(loader, 'channel_order', '') == 'rgb'


def converts_order(preprocessor: Any) -> bool:
    """Whether a data preprocessor of any host exchanges red and blue."""
    return any(bool(getattr(preprocessor, name, False))
               for name in ('_channel_conversion', 'channel_conversion', 'to_rgb'))


def size_divisor(model: nn.Module) -> int:
    """The number that height and width must be multiples of; 1 where the preprocessor does not pad."""
    preprocessor = model.data_preprocessor
    test_cfg = getattr(preprocessor, 'test_cfg', None) or {}
    return int(getattr(preprocessor, 'pad_size_divisor', 1) or test_cfg.get('size_divisor') or 1)
