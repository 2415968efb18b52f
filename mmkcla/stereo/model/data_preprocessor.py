"""Normalisation and batching of image pairs."""
from __future__ import annotations

from typing import Any

from mmengine.model import ImgDataPreprocessor

from ...registry import MODELS


@MODELS.register_module()
class StereoDataPreprocessor(ImgDataPreprocessor):
    """mmengine's ``ImgDataPreprocessor`` for image pairs.

    ``inputs`` of a sample is ``(2, 3, H, W)``, left and right. A batch is ``(B, 2, 3, H, W)``; smaller pairs are padded
    at the bottom and right, equally in both views, so disparities are unchanged. The arguments are those of the base
    class.
    """

    def forward(self, data: dict, training: bool = False) -> dict[str, Any]:
        """Normalise and batch the pairs, and move ``data_samples`` to the device."""
        views = [view for pair in data['inputs'] for view in pair]
        batch = super().forward(dict(inputs=views), training)['inputs']
        return dict(inputs=batch.unflatten(0, (-1, 2)), data_samples=self.cast_data(data.get('data_samples')))
