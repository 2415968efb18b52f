"""Decode images and masks, report what is wrong with them, and encode the files of a prepared data set."""
from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mmkcla.utils.images import FORMATS, image_problem, upright

from ...utils.text import one_line

MAX_PIXELS = 250_000_000  # a JPEG header of a few bytes can ask for gigabytes
JPEG_TOLERANCE = 32  # how far the colours of a grey JPEG may lie apart after decoding
_PNG_MODES = ('1', 'L', 'LA', 'P', 'RGB', 'RGBA', 'I;16')

Image.init()  # loads the readers; not a thing for several threads at once


class PixelError(Exception):
    """An invalid image or mask: ``kind``, as shown in the summary, and a detail or ''."""

    def __init__(self, kind: str, detail: str = '') -> None:
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


def decode(data: bytes, what: str) -> Image.Image:
    """Decode all pixels of the image in ``data``, as stored (EXIF orientation not applied).

    Args:
        data: the content of a file of one of :data:`~mmkcla.utils.images.FORMATS`.
        what: ``'image'`` or ``'mask'``, for the error.

    Raises:
        PixelError: ``corrupt image`` or ``corrupt mask``; ``16-bit mask`` for one that is not grey.
    """
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f'{picture.width}x{picture.height} pixels are more than {MAX_PIXELS}')
        picture.load()
    except MemoryError:
        raise
    except Exception as error:  # each format's reader has its own
        text = one_line(error, 120)
        if isinstance(error, UnidentifiedImageError):
            text = f'not a {", ".join(FORMATS)} file' if data else 'empty file'
        raise PixelError(f'corrupt {what}', text) from None
    if picture.format not in ('JPEG', 'MPO') and (frames := getattr(picture, 'n_frames', 1)) > 1:
        raise PixelError(f'several frames in one {what}', f'{frames}; save each as a file of its own')
    # Decoders fill in what is missing at the very end; the loader of a training refuses such files.
    if (problem := image_problem(data)) is not None:
        raise PixelError(f'corrupt {what}', problem)
    if what == 'mask' and picture.format == 'PNG' and data[24] == 16 and picture.mode[0] != 'I':
        raise PixelError('16-bit mask', 'in colour or with alpha; save it as grey of 8 bits')  # Pillow drops the low 8
    return picture


def upright_png(picture: Image.Image) -> bytes:
    """Encode the image as PNG, with the EXIF orientation applied and removed; modes that PNG lacks become RGB.

    Raises:
        PixelError: it has more than 8 bits in a form that PNG cannot hold.
    """
    picture = upright(picture)
    if picture.mode[0] in 'IF' and picture.mode not in _PNG_MODES:
        raise PixelError('image that PNG cannot hold', f'mode {picture.mode}; save it as grey of 8 or 16 bits')
    buffer = io.BytesIO()
    clean = picture if picture.mode in _PNG_MODES else picture.convert('RGB')
    clean.info = {key: value for key, value in clean.info.items() if key == 'transparency'}
    clean.save(buffer, 'PNG')
    return buffer.getvalue()


def grey(mask: Image.Image) -> np.ndarray:
    """The grey values of a mask, ``(H, W)`` uint8, as stored; the alpha channel is dropped.

    Masks of more than 8 bits are unchanged if their maximum is at most 255, and scaled to 8 bits if it is 65535.

    Raises:
        PixelError: ``coloured mask``: the class of a colour is unknown; ``16-bit mask``: for other maxima, since the
            value of white is unknown.
    """
    if mask.mode in ('1', 'L'):
        return np.asarray(mask.convert('L'))
    if mask.mode[0] in 'IF':
        values = np.asarray(mask)
        lowest, highest = values.min(initial=0), values.max(initial=0)
        if not (lowest >= 0 and (highest <= 255 or highest == 65535) and (values % 1 == 0).all()):
            raise PixelError('16-bit mask', f'values from {lowest:g} to {highest:g}; the largest must be 65535, or at '
                                            'most 255, and all must be integers')
        return (values if highest <= 255 else values // 257).astype(np.uint8)
    colour = mask.convert('RGB')
    red, green, blue = np.moveaxis(np.asarray(colour), -1, 0)
    apart = int((np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)).max(initial=0))
    if apart > (JPEG_TOLERANCE if mask.format in ('JPEG', 'MPO') else 0):
        raise PixelError('coloured mask', f'red, green and blue differ by up to {apart}; two-class masks must be grey')
    return np.asarray(colour.convert('L'))


def mask_png(labels: np.ndarray) -> bytes:
    """Labels ``(H, W)``, bool or uint8, as 8-bit PNG of one channel."""
    buffer = io.BytesIO()
    Image.fromarray(labels.astype(np.uint8)).save(buffer, 'PNG', compress_level=3)  # 6 takes thrice the time
    return buffer.getvalue()


def one_value_everywhere(pairs: Sequence[tuple[str, str]], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The problem of a training set whose masks all have one and the same value: there is nothing to learn.

    Args:
        pairs: relative paths of images and masks.
        results: of each pair, with ``only``: the one value of its mask, or None. Fewer results than pairs (a quick
            check) decide nothing.
    """
    if len(pairs) != len(results):
        return []
    train = [result['only'] for pair, result in zip(pairs, results, strict=True) if pair[0].startswith('images/train/')]
    if not train or train[0] is None or set(train) != {train[0]}:
        return []
    return [f'masks/train: every pixel of all {len(train)} masks is {train[0]}: there is nothing to learn']
