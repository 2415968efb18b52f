"""Loaders that the inferencers of the host libraries put in the place of ``LoadImageFromFile``."""
from typing import Any

import numpy as np

from ...registry import TRANSFORMS
from ...utils.images import to_8_bits
from .loading import LoadImageFromFile


@TRANSFORMS.register_module()
class LoadImageFromNDArray(LoadImageFromFile):
    """Prepare an image that is in memory (same arguments as :class:`LoadImageFromFile`)."""

    def transform(self, results: dict) -> dict:
        """Take ``results['img']`` (H×W×C, or H×W; 16 bits are scaled as in files); sets ``img_path`` and the shapes."""
        image = results['img']
        if image.dtype == np.uint16 and self.color_type != 'unchanged':
            image = to_8_bits(image, 2 ** (self.bits or 16) - 1)
        results['img'] = image.astype(np.float32) if self.to_float32 else image
        results['img_path'] = None
        results['img_shape'] = image.shape[:2]
        results['ori_shape'] = image.shape[:2]
        return results


@TRANSFORMS.register_module()
class InferencerLoader(LoadImageFromNDArray):
    """Load the input of an inferencer: a path, an array, or a dict with ``img_path`` or ``img``.

    ``MMSegInferencer`` replaces the type ``LoadImageFromFile`` by ``InferencerLoader``. In the shipped configs the
    entry has ``_scope_='mmkcla'``, so images are loaded here as they are in training.
    """

    def transform(self, results: Any) -> dict | None:
        """Return a dict with ``img`` (H×W×C), ``img_path``, ``img_shape`` and ``ori_shape``.

        Raises:
            TypeError: another kind of input.
        """
        if isinstance(results, np.ndarray):
            results = dict(img=results)
        elif isinstance(results, str):
            results = dict(img_path=results)
        elif not isinstance(results, dict):
            raise TypeError(f'an image must be a path, an array or a dict, not {type(results).__name__}')
        return super().transform(results) if 'img' in results else LoadImageFromFile.transform(self, results)
