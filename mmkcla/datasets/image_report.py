"""The report of ``mmkcla data verify`` on a single image or mask file."""
from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..registry import PATH_REPORTS
from ..utils.images import IMAGE_SUFFIXES
from .image_files import file_findings, read_images
from .report import NOTE, Fault, Report, faults_of
from .sheet import Sample

_LISTED = 32  # different values or colours up to which each is listed


@PATH_REPORTS.register_module('image file')
def report_image(path: Path) -> Report | None:
    """Report on format, size and content of an image or mask file: values or colours, with their shares. None for
    other paths."""
    if not path.is_file() or path.suffix.lower() not in IMAGE_SUFFIXES:
        return None
    image, = read_images([path], decode=True, progress=False)
    faults = faults_of(file_findings([image], 1))
    if image.problem is not None:
        return Report(str(path), {}, faults)
    with Image.open(io.BytesIO(path.read_bytes())) as picture:
        pixels, mode = np.asarray(picture), picture.mode
        palette = picture.getpalette() if mode == 'P' else None
        counts: dict[str, Any] = {'format': f'{picture.format}, mode {mode}', 'width': image.width,
                                  'height': image.height, 'bits per channel': image.bits}
    if image.orientation != 1:
        counts['EXIF orientation'] = image.orientation
    if pixels.ndim == 2:
        counts['values'], more = _values(pixels, palette)
    else:
        counts['colours'], more = _colours(pixels, mode)
    return Report(str(path), counts, faults + [Fault(line, NOTE, 1, []) for line in more],
                  draw=lambda: [Sample(path, path.name)])


def _values(pixels: np.ndarray, palette: list[int] | None) -> tuple[Any, list[str]]:
    """Values of an image of one channel, with their shares, and what they mean for a mask."""
    values, numbers = np.unique(pixels, return_counts=True)
    notes = []
    if len(values) == 2 and values.tolist() == [0, 255]:
        notes.append('the values are 0 and 255, and mmseg ignores 255; for a mask, use '
                     "type='mmkcla.LoadBinaryMask', threshold=127")
    if pixels.dtype.kind == 'f':
        notes.append('the values are floating-point; a mask needs 8-bit labels')
    elif values[-1] > 255:
        notes.append(f'there are values up to {values[-1]}; a mask needs 8-bit labels')
    if len(values) > _LISTED:
        return f'{values[0]:g} to {values[-1]:g}, {len(values)} different', notes
    colours = {} if palette is None else {
        int(value): ' (#' + bytes(palette[3 * value:3 * value + 3]).hex() + ')' for value in values}
    return {f'{value:g}{colours.get(int(value), "")}': f'{number / pixels.size:.2%}'
            for value, number in zip(values, numbers, strict=True)}, notes


def _colours(pixels: np.ndarray, mode: str) -> tuple[Any, list[str]]:
    """Colours of an image of several channels, with their shares."""
    channels = pixels.shape[-1] - (mode in ('LA', 'PA', 'RGBA', 'La', 'RGBa'))
    flat = pixels[..., :channels].reshape(-1, channels)
    if (flat == flat[:, :1]).all():
        found, _ = _values(flat[:, 0], None)
        return found, ['all channels are equal; a mask needs one channel']
    colours, numbers = np.unique(flat, axis=0, return_counts=True)
    if len(colours) > _LISTED:
        return f'{len(colours)} different', []
    return {'#' + bytes(colour.tolist()).hex(): f'{number / len(flat):.2%}'
            for colour, number in zip(colours, numbers, strict=True)}, []
