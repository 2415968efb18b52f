"""Prepare input images (orientation, notes on lost information) and write output images."""
import io
import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...datasets.image_files import resized
from ...datasets.pipelines import steps_of
from ...errors import UserError
from ...utils.files import whole_file
from ...utils.images import ORIENTATION, bit_depth, stored_turn, turn_array
from ...utils.text import note, one_line

_DARK = 64  # a maximum up to this means at most 14 bits in a 16-bit file


def make_upright(results: dict, path: Path, loader: Any) -> None:
    """Apply the EXIF orientation to a loaded image if its decoder has not: cv2 ignores the tag of WebP files, and
    every tag with the flags ``unchanged`` and ``…_ignore_orientation``. Predictions then match the displayed image.

    Also report on stderr further pages of a file, and 16-bit images with at most 14 bits of values.

    Args:
        results: output of ``loader``; ``img``, ``img_shape`` and ``ori_shape`` are updated.
        path: the image file.
        loader: ``mmkcla.LoadImageFromFile``.
    """
    image = results['img']
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            with Image.open(path) as file:
                method = stored_turn(file)
                kind, pages = file.format, getattr(file, 'n_frames', 1)
        bits, declared = bit_depth(path.read_bytes())
    except Exception:  # the image is already loaded; if Pillow cannot open it, no EXIF tag is known
        return
    if pages > 1:
        note(f'{path} has {pages} pages; using the first')
    if (bits == 16 and declared is None and getattr(loader, 'bits', None) is None and image.dtype == np.uint8
            and image.max(initial=0) <= _DARK):
        note(f'{path} has 16 bits per channel, but only small values, so that it is dark (maximum '
             f'{image.max(initial=0)} of 255); for 12 bits, set bits=12 in LoadImageFromFile of the test pipeline')
    if method is not None and not _decoder_turns(kind, loader):
        image = turn_array(image, method)
        results.update(img=image, img_shape=image.shape[:2], ori_shape=image.shape[:2])


@lru_cache
def _decoder_turns(kind: str, loader: Any) -> bool:
    """Whether the loader applies the EXIF orientation; tested with a small image in the same format."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    buffer = io.BytesIO()
    try:
        Image.new('RGB', (16, 8)).save(buffer, format=kind, exif=exif)
        return loader.decode(buffer.getvalue()).shape[:2] == (16, 8)
    except Exception:  # a format that Pillow cannot write
        return True


def too_narrow(size: tuple[int, int], steps: Any) -> str | None:
    """Describe the resize of a pipeline that leaves no pixel of an image's shorter side; None if there is none."""
    for step in steps_of(steps):
        scale = resized(size, step)
        if scale is not None and 0 in scale:
            return (f'{step["type"]} to {tuple(step["scale"])} with the ratio kept leaves {scale[0]}×{scale[1]} '
                    'pixels; crop the image, or predict parts of it')
    return None


def failure(error: Exception) -> str:
    """The reason of an error on one line; of OpenCV's, the condition without paths of its source."""
    import cv2
    if isinstance(error, cv2.error) and getattr(error, 'err', ''):
        return f'OpenCV cannot {error.func or "process it"}: {one_line(error.err, 150)}'
    return one_line(error, 200)


def rgb(image: np.ndarray, path: str | os.PathLike) -> np.ndarray:
    """Convert a loaded image (H×W or H×W×C, BGR) to H×W×3 RGB uint8.

    Raises:
        UserError: the number of channels is not 1, 3 or 4.
    """
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[2] not in (1, 3, 4):
        raise UserError(f'cannot draw on the image {path}: it has {image.shape[2]} channels')
    image = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image[..., 2::-1]
    if image.dtype != np.uint8:
        image = image.astype(np.float32)
        image = (image / max(float(image.max()) / 255, 1)).clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(image)


def tinted(image: np.ndarray, mask: np.ndarray, colour: tuple[int, int, int], strength: float = 0.3) -> np.ndarray:
    """Tint and outline a mask (H×W, bool), including its holes, in ``colour`` on an image (H×W×3)."""
    import cv2
    picture = image.copy()
    picture[mask] = (image[mask] * (1 - strength) + np.asarray(colour) * strength).round().astype(np.uint8)
    outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    width = max(1, round(max(image.shape[:2]) / 600))
    if width > 1:  # a dark border keeps the line visible on an image of the same colour
        cv2.drawContours(picture, outlines, -1, (0, 0, 0), width + 2)
    return cv2.drawContours(picture, outlines, -1, tuple(map(int, colour)), width)


def rle(mask: np.ndarray) -> dict:
    """Encode a mask (H×W) as compressed COCO RLE: ``{'size': [H, W], 'counts': str}``."""
    from pycocotools.mask import encode
    code = encode(np.asfortranarray(mask.astype(np.uint8)))
    return dict(size=[int(side) for side in code['size']], counts=code['counts'].decode('ascii'))


def write_image(path: Path, image: np.ndarray) -> None:
    """Write H×W (uint8 or uint16) or H×W×3 (RGB) pixels atomically; the suffix selects the format."""
    import cv2
    coded, data = cv2.imencode(path.suffix, image[..., ::-1] if image.ndim == 3 else image)
    if not coded:
        raise UserError(f'cannot write the picture {path}')
    with whole_file(path) as file:
        file.write(data.tobytes())
