"""Load binary masks and check their values."""
from __future__ import annotations

import io
from pathlib import Path

import mmcv
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine import fileio
from PIL import Image

from ...errors import UserError
from ...registry import TRANSFORMS
from ...utils.images import image_problem, turn, turn_array


@TRANSFORMS.register_module()
class LoadBinaryMask(BaseTransform):
    """Load a two-class mask into ``gt_seg_map`` (H×W, uint8, 0 and 1); replaces mmseg's ``LoadAnnotations``.

    mmseg ignores the 255 of a 0/255 mask, so that an all-background prediction scores 100 %. Here a mask must contain
    0 and 1, or a threshold must be set. A three-channel mask with equal channels is reduced to one channel. The EXIF
    orientation of a mask is applied, as it is for images loaded in colour or grey.

    Args:
        threshold: None: the values must be 0 and 1. A number: values above it are foreground (127 for 0/255 masks,
            and for JPEG masks with grey edges).
        imdecode_backend: decoder of mmcv.

    Raises:
        UserError: for other values, coloured masks, unreadable files, and a mask that differs in size from its image;
            the message names the file.
    """

    def __init__(self, threshold: int | None = None, imdecode_backend: str = 'cv2') -> None:
        self.threshold = threshold
        self.imdecode_backend = imdecode_backend

    def transform(self, results: dict) -> dict:
        """Load ``results['seg_map_path']``; adds ``gt_seg_map`` to ``results`` and to its ``seg_fields``.

        A single image of an inferencer (no ``seg_map_path``, and not a sample of a data set) is returned unchanged.
        """
        path = results.get('seg_map_path')
        if path is None:
            if 'sample_idx' in results:  # set by every data set of mmengine
                raise UserError(f'the data set gives no mask (seg_map_path) for the image {results.get("img_path")}; '
                                "set the mask folder in its data_prefix, or remove LoadBinaryMask from its pipeline")
            return results
        mask = self._read(path)
        shape = results.get('ori_shape')
        if shape is not None and mask.shape != tuple(shape):
            raise UserError(f'the mask {path} has {mask.shape[1]}×{mask.shape[0]} pixels, but its image '
                            f'{results.get("img_path")} has {shape[1]}×{shape[0]}')
        results['gt_seg_map'] = binarise(mask, self.threshold, path)
        results.setdefault('seg_fields', []).append('gt_seg_map')
        return results

    def _read(self, path: str) -> np.ndarray:
        try:
            data = fileio.get(path)
        except OSError as error:
            raise UserError(f'cannot read the mask {path}: {(error.strerror or str(error)).lower()}') from error
        problem = image_problem(data)
        mask = None if problem else mmcv.imfrombytes(data, flag='unchanged', backend=self.imdecode_backend)
        if mask is None:
            raise UserError(f'cannot read the mask {path}: {problem or "it is damaged, or in an unknown format"}')
        return upright(grey(mask, path), data)

    def __repr__(self) -> str:
        return f'{type(self).__name__}(threshold={self.threshold})'


def upright(mask: np.ndarray, data: bytes) -> np.ndarray:
    """Apply the EXIF orientation of a JPEG or PNG file; decoders do not apply it to masks, which are read unchanged.

    Args:
        mask: ``(H, W)``, as stored.
        data: the bytes of the file.
    """
    if b'eXIf' not in data and b'Exif\0\0' not in data:  # cheap: Pillow looks behind the pixels of a PNG, too
        return mask
    try:
        method = turn(Image.open(io.BytesIO(data), formats=('JPEG', 'PNG')))
    except OSError:  # another format: the decoder turned it, as it does an image of that format, or does neither
        return mask
    return mask if method is None else turn_array(mask, method)


def grey(mask: np.ndarray, path: str | Path) -> np.ndarray:
    """Convert ``(H, W)`` or ``(H, W, 1 to 4)`` to ``(H, W)``; the alpha channel is dropped.

    Raises:
        UserError: the colour channels differ, so the class of a colour is unknown.
    """
    if mask.ndim == 2:
        return mask
    colours = mask[..., :3] if mask.shape[2] >= 3 else mask[..., :1]
    if (colours != colours[..., :1]).any():
        raise UserError(f'the mask {path} is coloured; two-class masks must be grey; convert it first')
    return colours[..., 0]


def binarise(mask: np.ndarray, threshold: int | None, path: str | Path) -> np.ndarray:
    """Convert a grey mask to 0 and 1, uint8.

    Raises:
        UserError: without a threshold, for values other than 0 and 1; with a threshold, for a mask of 0 and 1 that
            would become empty, and for a 16-bit mask with an 8-bit threshold.
    """
    if threshold is not None:
        largest = mask.max(initial=0)
        if largest == 1 and threshold >= 1:
            raise UserError(f'the mask {path} contains 0 and 1, so LoadBinaryMask(threshold={threshold}) would make it '
                            'empty; remove the threshold')
        if largest > 255 >= threshold:
            raise UserError(f'the mask {path} has values up to {largest} (16 bits), but LoadBinaryMask(threshold='
                            f'{threshold}) is for 8 bits; set 32767, or convert the data set with mmkcla data')
        return (mask > threshold).astype(np.uint8)
    if mask.max(initial=0) > 1:
        values = np.unique(mask)
        shown = ', '.join(map(str, values[:6])) + (', …' if len(values) > 6 else '')
        raise UserError(f'the mask {path} has the values {shown}, but 0 and 1 are expected; set '
                        'LoadBinaryMask(threshold=127) for 0/255 masks, or convert the data set with mmkcla data')
    return mask.astype(np.uint8)
