"""Files of disparities, in pixels: PFM, NumPy's, and the 16-bit PNGs of KITTI."""
from __future__ import annotations

import io
import os
import re
from pathlib import Path

import cv2
import numpy as np
from mmengine import fileio
from PIL import Image

from ..errors import UserError
from ..utils.files import whole_file

SUFFIXES = ('.pfm', '.npy', '.png')
KITTI_SCALE = 256
# type, width, height, scale: apart by any white space, and one character of it (or a line end of two) before the data
_PFM_HEADER = re.compile(rb'(P[Ff])\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+([-+.\deE]+)(?:\r\n|\s)')


def read_disparity(path: str | os.PathLike, png_scale: float = KITTI_SCALE) -> np.ndarray:
    """A disparity map, by the suffix of its file.

    Args:
        path: ``.pfm``; ``.npy``, of an array ``(H, W)``; or ``.png``, of 16 bits.
        png_scale: what the values of a PNG are divided by.

    Returns:
        ``(H, W)`` float32, in pixels; 0 where it is unknown: not a number, infinite, zero.

    Raises:
        UserError: naming the file, if it cannot be read, is of another kind, or is negative where it is known.
    """
    name, suffix = os.fspath(path), Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f'the disparity {name} is of an unknown kind; known are: {" ".join(SUFFIXES)}')
    try:
        data = fileio.get(name)
    except OSError as error:
        raise UserError(f'cannot read the disparity {name}: {(error.strerror or str(error)).lower()}') from error
    if suffix == '.pfm':
        disparity = parse_pfm(data, name)
    elif suffix == '.npy':
        disparity = _parse_npy(data, name)
    else:
        disparity = _parse_png(data, name) / np.float32(png_scale)
    disparity = np.where(np.isfinite(disparity), disparity, 0)
    if disparity.size and disparity.min() < 0:
        raise UserError(f"the disparity {name} goes down to {disparity.min():.4g} pixels; a left view's are positive "
                        "(take the left view's, or turn the sign)")
    return disparity


def parse_pfm(data: bytes, name: str) -> np.ndarray:
    """The values of a PFM file of one channel as they are, top row first.

    Own code, as OpenCV divides them by the header's scale (which Middlebury sets to 1/255 without scaling), and Pillow
    is one byte off after ``\\r\\n``.

    Args:
        data: the file's bytes. The scale's sign gives the order of bytes: negative is little-endian.
        name: of the file, for errors.

    Returns:
        ``(H, W)`` float32.
    """
    header = _PFM_HEADER.match(data)
    if header is None:
        raise UserError(f'{name} is not a PFM file: it begins with {bytes(data[:16])!r}')
    kind, width, height = header.group(1), int(header.group(2)), int(header.group(3))
    if kind == b'PF':
        raise UserError(f'{name} is a PFM file of three channels; a disparity has one')
    try:
        scale = float(header.group(4))
    except ValueError:
        scale = 0.
    if scale == 0:
        raise UserError(f'{name}: the PFM header has the scale {header.group(4).decode()}; its sign is the byte order')
    body = memoryview(data)[header.end():]
    if len(body) != 4 * width * height:
        raise UserError(f'{name} has {len(body)} bytes of values; {width}×{height} pixels take {4 * width * height} '
                        '(is it cut off?)')
    values = np.frombuffer(body, '<f4' if scale < 0 else '>f4').reshape(height, width)
    return values[::-1].astype(np.float32)


def write_pfm(path: str | os.PathLike, values: np.ndarray) -> None:
    """Write ``(H, W)`` values as a PFM file, little-endian, whole or not at all."""
    with whole_file(path) as file:
        Image.fromarray(np.ascontiguousarray(values, np.float32)).save(file, 'PPM')


def _parse_npy(data: bytes, name: str) -> np.ndarray:
    try:
        values = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f'cannot read the disparity {name}: {error}') from error
    if values.ndim != 2 or values.dtype.kind not in 'fui':
        raise UserError(f'{name} is {values.dtype} of shape {values.shape}; a disparity is (height, width) numbers')
    return values.astype(np.float32)


def _parse_png(data: bytes, name: str) -> np.ndarray:
    values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if values is None:
        raise UserError(f'cannot read the disparity {name}: it is no PNG, or damaged')
    if values.ndim != 2 or values.dtype != np.uint16:
        raise UserError(f'{name} is {values.dtype} of shape {values.shape}; a disparity PNG is grey, of 16 bits: '
                        f'pixels times {KITTI_SCALE}, as KITTI has it')
    return values.astype(np.float32)
