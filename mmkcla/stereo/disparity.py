"""Read and write disparity files, in pixels: PFM, NumPy, and KITTI's 16-bit PNG."""
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
# type, width, height, scale: separated by white space; one white-space character or CRLF before the data
_PFM_HEADER = re.compile(rb'(P[Ff])\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+([-+.\deE]+)(?:\r\n|\s)')


def read_disparity(path: str | os.PathLike, png_scale: float = KITTI_SCALE) -> np.ndarray:
    """Read a disparity map. The file suffix determines the format.

    Args:
        path: ``.pfm``, ``.npy`` (an array ``(H, W)``), or ``.png`` (16 bits).
        png_scale: divisor of the values of a PNG.

    Returns:
        ``(H, W)`` float32, in pixels; 0 where the disparity is unknown (NaN, infinite or 0 in the file).

    Raises:
        UserError: if the file cannot be read, has another format, or contains negative disparities (names the file).
    """
    name, suffix = os.fspath(path), Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f'the disparity {name} has an unknown format; use one of: {" ".join(SUFFIXES)}')
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
        raise UserError(f'the disparity {name} has negative values (minimum {disparity.min():.4g} pixels); use the '
                        'disparity of the left view, or invert the sign')
    return disparity


def parse_pfm(data: bytes, name: str) -> np.ndarray:
    """Parse a PFM file with one channel. Values are unscaled, with the top row first.

    OpenCV is not used because it divides the values by the scale in the header (Middlebury writes 1/255 without scaling
    the values), and Pillow because it is off by one byte after ``\\r\\n``.

    Args:
        data: contents of the file. The sign of the scale gives the byte order: negative is little-endian.
        name: file name for error messages.

    Returns:
        ``(H, W)`` float32.
    """
    header = _PFM_HEADER.match(data)
    if header is None:
        raise UserError(f'{name} is not a PFM file: it starts with {bytes(data[:16])!r}')
    kind, width, height = header.group(1), int(header.group(2)), int(header.group(3))
    if kind == b'PF':
        raise UserError(f'{name} is a PFM file with three channels; a disparity has one')
    try:
        scale = float(header.group(4))
    except ValueError:
        scale = 0.
    if scale == 0:
        raise UserError(f'{name}: the PFM header has the invalid scale {header.group(4).decode()}; its sign gives the '
                        'byte order')
    body = memoryview(data)[header.end():]
    if len(body) != 4 * width * height:
        raise UserError(f'{name} has {len(body)} bytes of data; {width}×{height} pixels need {4 * width * height} '
                        '(is it truncated?)')
    values = np.frombuffer(body, '<f4' if scale < 0 else '>f4').reshape(height, width)
    return values[::-1].astype(np.float32)


def write_pfm(path: str | os.PathLike, values: np.ndarray) -> None:
    """Write values ``(H, W)`` as a little-endian PFM file, atomically."""
    with whole_file(path) as file:
        Image.fromarray(np.ascontiguousarray(values, np.float32)).save(file, 'PPM')


def _parse_npy(data: bytes, name: str) -> np.ndarray:
    try:
        values = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f'cannot read the disparity {name}: {error}') from error
    if values.ndim != 2 or values.dtype.kind not in 'fui':
        raise UserError(f'{name} is {values.dtype} with shape {values.shape}; expected numbers with shape (H, W)')
    return values.astype(np.float32)


def _parse_png(data: bytes, name: str) -> np.ndarray:
    values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if values is None:
        raise UserError(f'cannot read the disparity {name}: it is damaged, or not a PNG')
    if values.ndim != 2 or values.dtype != np.uint16:
        raise UserError(f'{name} is {values.dtype} with shape {values.shape}; expected a 16-bit grey PNG with pixels '
                        f'times {KITTI_SCALE}, as in KITTI')
    return values.astype(np.float32)
