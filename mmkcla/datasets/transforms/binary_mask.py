"""Loading of binary masks that checks their values."""
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
    """Load a mask of two classes into ``gt_seg_map`` (H×W, uint8, 0 and 1), in place of mmseg's ``LoadAnnotations``.

    mmseg takes the 255 of a 0/255 mask for "ignore", so that an all-background prediction scores 100 %. Here a mask
    holds 0 and 1, or else a threshold is declared. A colour mask is reduced if it is grey. A mask with an EXIF
    orientation is turned upright, as images are when they are loaded in colour or grey.

    Args:
        threshold: None: the values must be 0 and 1. A number: values above it are foreground (127 for 0/255 masks,
            and for JPEG masks with grey edges).
        imdecode_backend: decoder of mmcv.

    Raises:
        UserError: naming the file, for other values, coloured masks, unreadable files, and a mask that differs in size
            from its image.
    """

    def __init__(self, threshold: int | None = None, imdecode_backend: str = 'cv2') -> None:
        self.threshold = threshold
        self.imdecode_backend = imdecode_backend

    def transform(self, results: dict) -> dict:
        """Load ``results['seg_map_path']``; adds ``gt_seg_map`` to ``results`` and to its ``seg_fields``."""
        path = results['seg_map_path']
        mask = self._read(path)
        shape = results.get('ori_shape')
        if shape is not None and mask.shape != tuple(shape):
            raise UserError(f'the mask {path} is of {mask.shape[1]}×{mask.shape[0]} pixels, its image '
                            f'{results.get("img_path")} of {shape[1]}×{shape[0]}')
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
    """Apply the EXIF orientation that a JPEG or PNG file has; decoders leave it in a mask, which is read unchanged.

    Args:
        mask: ``(H, W)``, as stored.
        data: the content of the file.
    """
    if b'eXIf' not in data and b'Exif\0\0' not in data:  # cheap: Pillow looks behind the pixels of a PNG, too
        return mask
    try:
        method = turn(Image.open(io.BytesIO(data), formats=('JPEG', 'PNG')))
    except OSError:  # another format: the decoder turned it, as it does an image of that format, or does neither
        return mask
    return mask if method is None else turn_array(mask, method)


def grey(mask: np.ndarray, path: str | Path) -> np.ndarray:
    """``(H, W)`` or ``(H, W, 1 to 4)`` to ``(H, W)``; alpha is left out.

    Raises:
        UserError: if the colours differ: it is not clear then which class they mean.
    """
    if mask.ndim == 2:
        return mask
    colours = mask[..., :3] if mask.shape[2] >= 3 else mask[..., :1]
    if (colours != colours[..., :1]).any():
        raise UserError(f'the mask {path} is coloured; a mask of two classes is grey. Convert it first')
    return colours[..., 0]


def binarise(mask: np.ndarray, threshold: int | None, path: str | Path) -> np.ndarray:
    """A grey mask to 0 and 1, uint8.

    Raises:
        UserError: without a threshold, for values other than 0 and 1; with one, for a mask of 0 and 1 that would come
            out empty, and for one of 16 bits where the threshold is one of 8.
    """
    if threshold is not None:
        largest = mask.max(initial=0)
        if largest == 1 and threshold >= 1:
            raise UserError(f'the mask {path} holds 0 and 1, and LoadBinaryMask(threshold={threshold}) would empty it; '
                            'leave the threshold out')
        if largest > 255 >= threshold:
            raise UserError(f'the mask {path} has values up to {largest} (16 bits), LoadBinaryMask(threshold='
                            f'{threshold}) is for 255; declare 32767, or run a converter of tools/dataset_converters')
        return (mask > threshold).astype(np.uint8)
    if mask.max(initial=0) > 1:
        values = np.unique(mask)
        shown = ', '.join(map(str, values[:6])) + (', …' if len(values) > 6 else '')
        raise UserError(f'the mask {path} has the values {shown} where 0 and 1 are expected; declare '
                        'LoadBinaryMask(threshold=127) for 0/255 masks, or run a converter of tools/dataset_converters')
    return mask.astype(np.uint8)
