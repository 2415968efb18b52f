"""Transforms for rectified pairs: ``left`` and ``right`` (H×W×3, BGR, uint8) and ``disparity`` (H×W, pixels)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine import fileio
from mmengine.structures import BaseDataElement, PixelData
from torchvision.transforms import v2

from ..datasets.transforms.loading import LoadImageFromFile
from ..errors import UserError
from ..registry import TRANSFORMS
from ..utils.text import one_line
from .disparity import KITTI_SCALE, read_disparity

_META = ('name', 'left_path', 'right_path', 'disparity_path', 'img_shape', 'ori_shape')


@TRANSFORMS.register_module()
class LoadStereoPair(BaseTransform):
    """Load ``left_path`` and ``right_path`` into ``left`` and ``right``; adds ``img_shape`` and ``ori_shape``.

    Args:
        imdecode_backend: image decoder of mmcv.

    Raises:
        UserError: if a file cannot be read, or the views differ in size (names the files).
    """

    def __init__(self, imdecode_backend: str = 'cv2') -> None:
        self.loader = LoadImageFromFile(imdecode_backend=imdecode_backend)

    def transform(self, results: dict) -> dict:
        """See the class."""
        for side in ('left', 'right'):
            results[side] = self.loader.transform(dict(img_path=results[f'{side}_path']))['img']
        shape = results['left'].shape[:2]
        if results['right'].shape[:2] != shape:
            raise UserError(f'the views differ in size: {results["left_path"]} has {_size(shape)} pixels, '
                            f'{results["right_path"]} has {_size(results["right"].shape)}')
        results['img_shape'] = results['ori_shape'] = shape
        return results


@TRANSFORMS.register_module()
class LoadDisparity(BaseTransform):
    """Load ``disparity_path`` into ``disparity``: float32, 0 means unknown.

    A pair without ``disparity_path`` (a test set without ground truth) is unchanged.

    Args:
        occluded: ``'keep'``, or ``'drop'``: set the disparity to unknown where ``occlusion_path`` is not 0.
        png_scale: divisor of the values of a 16-bit PNG.

    Raises:
        UserError: see :func:`~mmkcla.stereo.disparity.read_disparity`; also for ``'drop'`` without an occlusion mask,
            and if the size differs from that of the image.
    """

    def __init__(self, occluded: str = 'keep', png_scale: float = KITTI_SCALE) -> None:
        if occluded not in ('keep', 'drop'):
            raise UserError(f'LoadDisparity: occluded={occluded!r} is unknown; choose one of: keep, drop')
        self.occluded, self.png_scale = occluded, png_scale

    def transform(self, results: dict) -> dict:
        """See the class."""
        path = results.get('disparity_path')
        if path is None:
            return results
        disparity = read_disparity(path, self.png_scale)
        _check_size(disparity, f'the disparity {path}', results)
        if self.occluded == 'drop':
            mask_path = results.get('occlusion_path')
            if mask_path is None:
                raise UserError(f"LoadDisparity(occluded='drop'): the pair {results.get('name')} has no occlusion mask")
            mask = self._mask(mask_path)
            _check_size(mask, f'the occlusion mask {mask_path}', results)
            disparity = np.where(mask, np.float32(0), disparity)
        results['disparity'] = disparity
        return results

    @staticmethod
    def _mask(path: str) -> np.ndarray:
        try:
            mask = mmcv.imfrombytes(fileio.get(path), flag='grayscale')
        except (OSError, cv2.error) as error:
            raise UserError(f'cannot read the occlusion mask {path}: {one_line(error)}') from error
        if mask is None:
            raise UserError(f'cannot read the occlusion mask {path}: it is damaged, or in an unknown format')
        return mask > 0


@TRANSFORMS.register_module()
class StereoRandomCrop(BaseTransform):
    """Crop both views and the disparity to the same random window. Disparities are unchanged.

    Args:
        size: (height, width) in pixels.
        max_shift: shift the window of the right view to the right by a random number of pixels between −``max_shift``
            and ``max_shift``, limited by the image border. All disparities increase by the shift; those that are no
            longer above 0 become unknown. On small data sets this keeps a network from memorising the disparity of
            each surface instead of matching.

    Raises:
        UserError: if the image is smaller than the crop.
    """

    def __init__(self, size: Sequence[int], max_shift: int = 0) -> None:
        if len(size) != 2 or min(size) < 1:
            raise UserError(f'StereoRandomCrop: size={size} must be (height, width)')
        if max_shift < 0:
            raise UserError(f'StereoRandomCrop: max_shift={max_shift} must not be negative')
        self.size, self.max_shift = tuple(size), max_shift

    def transform(self, results: dict) -> dict:
        """See the class."""
        height, width = results['left'].shape[:2]
        if height < self.size[0] or width < self.size[1]:
            raise UserError(f'{results.get("left_path")} has {width}×{height} pixels, smaller than the crop of '
                            f'{_size(self.size)}; choose a smaller StereoRandomCrop.size')
        top, left, right = (int(np.random.randint(most + 1)) for most in (
            height - self.size[0], width - self.size[1], 2 * self.max_shift))
        right = min(max(left + right - self.max_shift, 0), width - self.size[1])
        for key, start in (('left', left), ('right', right), ('disparity', left)):
            if key in results:
                results[key] = results[key][top:top + self.size[0], start:start + self.size[1]]
        if 'disparity' in results and right != left:
            known = results['disparity'] > 0
            results['disparity'] = np.where(known, (results['disparity'] + (right - left)).clip(0), 0)
        results['img_shape'] = self.size
        return results


@TRANSFORMS.register_module()
class StereoVerticalFlip(BaseTransform):
    """Flip both views and the disparity vertically with probability ``prob``. Disparity values are unchanged."""

    def __init__(self, prob: float = 0.5) -> None:
        if not 0 <= prob <= 1:
            raise UserError(f'StereoVerticalFlip: prob={prob} must be between 0 and 1')
        self.prob = prob

    def transform(self, results: dict) -> dict:
        """See the class."""
        if np.random.rand() < self.prob:
            for key in ('left', 'right', 'disparity'):
                if key in results:
                    results[key] = results[key][::-1]
        return results


@TRANSFORMS.register_module()
class StereoColorJitter(BaseTransform):
    """torchvision's ``ColorJitter``, with the same or different random parameters for both views.

    Args:
        brightness, contrast, saturation, hue: see torchvision.
        asymmetric: probability of different parameters for the two views.
    """

    def __init__(self, brightness: float = 0.2, contrast: float = 0.2, saturation: float = 0.2, hue: float = 0.,
                 asymmetric: float = 0.2) -> None:
        if not 0 <= asymmetric <= 1:
            raise UserError(f'StereoColorJitter: asymmetric={asymmetric} must be between 0 and 1')
        self.jitter = v2.ColorJitter(brightness, contrast, saturation, hue)
        self.asymmetric = asymmetric

    def transform(self, results: dict) -> dict:
        """See the class."""
        pair = _stacked(results).flip(1)  # torchvision expects RGB
        if np.random.rand() < self.asymmetric:
            pair = torch.stack([self.jitter(view) for view in pair])
        else:
            pair = self.jitter(pair)
        results['left'], results['right'] = pair.flip(1).permute(0, 2, 3, 1).numpy()
        return results


@TRANSFORMS.register_module()
class PackStereoInputs(BaseTransform):
    """Pack ``inputs`` ``(2, 3, H, W)`` uint8, and ``data_samples`` with ``gt_disparity`` and metainfo."""

    def transform(self, results: dict) -> dict[str, Any]:
        """See the class."""
        sample = BaseDataElement(metainfo={key: results[key] for key in _META if key in results})
        if 'disparity' in results:
            sample.gt_disparity = PixelData(data=torch.from_numpy(np.ascontiguousarray(results['disparity']))[None])
        return dict(inputs=_stacked(results), data_samples=sample)


def _stacked(results: dict) -> torch.Tensor:
    pair = np.stack([results['left'], results['right']])
    return torch.from_numpy(pair).permute(0, 3, 1, 2).contiguous()


def _check_size(array: np.ndarray, what: str, results: dict) -> None:
    shape = results['left'].shape[:2]
    if array.shape != shape:
        raise UserError(f'{what} has {_size(array.shape)} pixels, its image {results["left_path"]} has {_size(shape)}')


def _size(shape: Sequence[int]) -> str:
    return f'{shape[1]}×{shape[0]}'
