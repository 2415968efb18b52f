"""Image files: suffixes, EXIF orientation, bit depth and truncated files."""
from __future__ import annotations

import io
import re
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import UserError
from .image_damage import JPEG, PNG, damage, segments
from .text import one_line

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.webp', '.tif', '.tiff', '.ppm')
FORMATS = ('JPEG', 'PNG', 'BMP', 'WEBP', 'TIFF', 'PPM')  # Pillow's names of these formats

ORIENTATION = 0x0112  # the EXIF tag
# transpose that makes the stored picture upright, by the value of the tag
UPRIGHT = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
           5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
           8: Image.Transpose.ROTATE_90}
_SIDEWAYS = {UPRIGHT[value] for value in (5, 6, 7, 8)}
_QUARTERS = {Image.Transpose.ROTATE_90: 1, Image.Transpose.ROTATE_180: 2, Image.Transpose.ROTATE_270: 3}
_HEIC = (b'heic', b'heix', b'hevc', b'heim', b'heis')
_PNM = re.compile(rb'P[2356]\s+(?:#[^\n]*\s+)*(\d+\s+(?:#[^\n]*\s+)*\d+)\s+(?:#[^\n]*\s+)*(\d+)\s')


def turn(picture: Image.Image) -> Image.Transpose | None:
    """Transpose that makes a picture decoded by Pillow upright, from its EXIF orientation; None if it is upright."""
    if picture.format == 'TIFF':  # Pillow rotates TIFF while decoding and reports the upright size
        return None
    return stored_turn(picture)


def stored_turn(picture: Image.Image) -> Image.Transpose | None:
    """Transpose that makes the stored pixels upright, independent of the decoder; None if they are upright."""
    try:
        return UPRIGHT.get(picture.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data does not mean damaged pixels
        return None


def orientation_of(picture: Image.Image) -> int:
    """EXIF orientation of a picture, 1 to 8, as far as Pillow has not applied it; 1 is upright."""
    if turn(picture) is None:
        return 1
    return picture.getexif()[ORIENTATION]


def upright_size(picture: Image.Image) -> tuple[int, int]:
    """Width and height of the picture after :func:`upright`."""
    width, height = picture.size
    return (height, width) if turn(picture) in _SIDEWAYS else (width, height)


def upright(picture: Image.Image) -> Image.Image:
    """Apply the EXIF orientation of a picture; ``format`` is preserved."""
    method = turn(picture)
    if method is None:
        return picture
    turned = picture.transpose(method)
    turned.format = picture.format
    return turned


def bit_depth(data: bytes) -> tuple[int, int | None]:
    """Bits of a channel of an image file, and its declared largest value.

    TIFF (``MaxSampleValue``) and the PNM formats can declare a largest value below that of their bits. A PNG cannot:
    its ``sBIT`` chunk says how many bits of an already scaled value are significant.

    Args:
        data: the content of the file.

    Returns:
        Bits of a channel (32 for floating-point values, too); the declared largest value, or None.
    """
    if data.startswith(PNG):
        return (data[24] if len(data) > 24 else 8), None
    if found := _PNM.match(data):
        largest = int(found[2])
        return (8 if largest < 256 else 16), (None if largest in (255, 65535) else largest)
    if data[:4] in (b'II*\0', b'MM\0*'):
        with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as picture:
            warnings.simplefilter('ignore')
            bits, largest = (picture.tag_v2.get(tag) for tag in (258, 281))
        bits = max(bits) if isinstance(bits, tuple) else bits or 1
        largest = max(largest) if isinstance(largest, tuple) else largest
        return bits, (largest if largest and bits > 8 and largest not in (2 ** bits - 1, 0) else None)
    return 8, None


def to_8_bits(pixels: np.ndarray, largest: int) -> np.ndarray:
    """Scale integer values to 8 bits: ``round(value * 255 / largest)``.

    Args:
        pixels: of any shape; unsigned integers.
        largest: the value that becomes 255, e.g. 65535, or 4095 for 12 bits.

    Raises:
        UserError: there is a larger value.
    """
    highest = int(pixels.max(initial=0))
    if highest > largest:
        raise UserError(f'it has the value {highest}, but {largest} is the largest of {largest.bit_length()} bits')
    table = np.rint(np.arange(highest + 1) * (255 / largest)).astype(np.uint8)
    return table[pixels]


def as_loaded(path: Path, stretch: bool = False) -> Image.Image:
    """The picture in RGB, upright; 16 bits are scaled to 8 as by :func:`to_8_bits`.

    Args:
        path: of the image.
        stretch: for the eye: spread the values of more than 8 bits from their 1 % to their 99 % quantile.

    Raises:
        UserError: the file cannot be decoded.
    """
    try:
        with Image.open(path) as picture:
            picture = upright(picture)
            if picture.mode.startswith(('I', 'F')):
                values = np.asarray(picture, np.float64)
                low, high = np.percentile(values, (1, 99)) if stretch else (0, 65535)
                grey = np.rint(np.clip((values - low) / max(high - low, 1e-9) * 255, 0, 255)).astype(np.uint8)
                picture = Image.fromarray(grey)
            return picture.convert('RGB')
    except UserError:
        raise
    except Exception as error:
        raise UserError(f'cannot read the image {path}: {one_line(error, 200)}') from error


def turn_array(pixels: np.ndarray, method: Image.Transpose) -> np.ndarray:
    """Apply Pillow's ``transpose`` to an array ``(H, W, …)``."""
    if method in _QUARTERS:
        turned = np.rot90(pixels, _QUARTERS[method])
    elif method in (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM):
        turned = np.flip(pixels, 1 if method is Image.Transpose.FLIP_LEFT_RIGHT else 0)
    else:
        turned = (np.rot90(pixels, 2) if method is Image.Transpose.TRANSVERSE else pixels).swapaxes(0, 1)
    return np.ascontiguousarray(turned)


def image_problem(data: bytes, decode: bool = True) -> str | None:
    """Describe a problem with the bytes of an image file; None if there is none.

    Args:
        data: the content of the file.
        decode: also look for damage inside of JPEG, PNG and TIFF data, see :func:`~.image_damage.damage`.
    """
    data = bytes(data)
    return _not_whole(data) or (damage(data) if decode else None)


def _not_whole(data: bytes) -> str | None:
    if not data:
        return 'the file is empty'
    if data.startswith(b'version https://git-lfs'):
        return 'it is a git-lfs pointer, not the image (run: git lfs pull)'
    if data.lstrip()[:1] == b'<' and b'<svg' not in data[:1000] and b'<html' in data[:1000].lower():
        return 'it is a web page, not an image'
    if data[4:8] == b'ftyp' and data[8:12] in _HEIC:
        return 'it is a HEIC picture, which is not supported; convert it to JPEG or PNG'
    if data.startswith(JPEG) and data.rfind(b'\xff\xd9') < _scan_start(data):
        return f'the JPEG is truncated (no end marker in its {len(data)} bytes)'
    if data[:4] == b'RIFF' and data[8:12] == b'WEBP' and int.from_bytes(data[4:8], 'little') + 8 > len(data):
        return f'the WebP is truncated ({len(data)} of {int.from_bytes(data[4:8], "little") + 8} bytes)'
    return None


def _scan_start(data: bytes) -> int:
    """Offset of the first scan of a JPEG, or its length. An embedded thumbnail has its own end marker."""
    return next((start for marker, start, _ in segments(data) if marker == 0xDA), len(data))
