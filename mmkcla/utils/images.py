"""Image files: suffixes, EXIF orientation, and files that are cut off."""
from __future__ import annotations

import numpy as np
from PIL import Image

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.webp', '.tif', '.tiff', '.ppm')
FORMATS = ('JPEG', 'PNG', 'BMP', 'WEBP', 'TIFF', 'PPM')  # Pillow's names of the same

ORIENTATION = 0x0112  # the EXIF tag
# what turns the stored picture upright, by the value of the tag
UPRIGHT = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
           5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
           8: Image.Transpose.ROTATE_90}
_SIDEWAYS = {UPRIGHT[value] for value in (5, 6, 7, 8)}
_QUARTERS = {Image.Transpose.ROTATE_90: 1, Image.Transpose.ROTATE_180: 2, Image.Transpose.ROTATE_270: 3}
_JPEG, _PNG = b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n'
_PNG_END = b'IEND\xaeB`\x82'
_NO_LENGTH = {0x01, *range(0xD0, 0xD8)}  # JPEG markers without a segment


def turn(picture: Image.Image) -> Image.Transpose | None:
    """What turns a picture, as Pillow decodes it, upright by its EXIF orientation; None if it is upright."""
    if picture.format == 'TIFF':  # Pillow turns it when it decodes, and reports the upright size before
        return None
    return stored_turn(picture)


def stored_turn(picture: Image.Image) -> Image.Transpose | None:
    """What turns the stored pixels upright, whatever decodes them."""
    try:
        return UPRIGHT.get(picture.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data say nothing about the pixels
        return None


def upright_size(picture: Image.Image) -> tuple[int, int]:
    """Width and height of the picture after :func:`upright`."""
    width, height = picture.size
    return (height, width) if turn(picture) in _SIDEWAYS else (width, height)


def upright(picture: Image.Image) -> Image.Image:
    """The picture with its EXIF orientation applied; ``format`` is kept."""
    method = turn(picture)
    if method is None:
        return picture
    turned = picture.transpose(method)
    turned.format = picture.format
    return turned


def turn_array(pixels: np.ndarray, method: Image.Transpose) -> np.ndarray:
    """What Pillow's ``transpose`` does, for pixels ``(H, W, …)``."""
    if method in _QUARTERS:
        turned = np.rot90(pixels, _QUARTERS[method])
    elif method in (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM):
        turned = np.flip(pixels, 1 if method is Image.Transpose.FLIP_LEFT_RIGHT else 0)
    else:
        turned = (np.rot90(pixels, 2) if method is Image.Transpose.TRANSVERSE else pixels).swapaxes(0, 1)
    return np.ascontiguousarray(turned)


def image_problem(data: bytes) -> str | None:
    """What is wrong with the bytes of an image file as far as they tell by themselves; None if nothing is."""
    data = bytes(data)
    if not data:
        return 'the file is empty'
    if data.startswith(b'version https://git-lfs'):
        return 'it is a git-lfs pointer, not the image (run: git lfs pull)'
    if data.lstrip()[:1] == b'<' and b'<svg' not in data[:1000] and b'<html' in data[:1000].lower():
        return 'it is a web page, not an image'
    if data.startswith(_JPEG) and data.rfind(b'\xff\xd9') < _scan_start(data):
        return f'the JPEG is cut off (no end marker in its {len(data)} bytes)'
    if data.startswith(_PNG) and data.rfind(_PNG_END) < 0:
        return f'the PNG is cut off (no end chunk in its {len(data)} bytes)'
    if data[:4] == b'RIFF' and data[8:12] == b'WEBP' and int.from_bytes(data[4:8], 'little') + 8 > len(data):
        return f'the WebP is cut off ({len(data)} of {int.from_bytes(data[4:8], "little") + 8} bytes)'
    return None


def _scan_start(data: bytes) -> int:
    """Where a JPEG's own image data starts; a thumbnail in its head has an end marker, too. Its length if nowhere."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return at  # not a marker: let the decoder judge
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _NO_LENGTH:
            at += 2
        elif marker == 0xDA:
            return at
        else:
            at += 2 + int.from_bytes(data[at + 2:at + 4], 'big')
    return len(data)
