"""Small files for the tests of medical data sets: pictures, masks, and ISIC 2017 as unpacked."""
import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from mmkcla.datasets.segmentation.converters.isic import ISIC2017

IMAGES, MASKS = ISIC2017.parts[0].images, ISIC2017.parts[0].masks
DISC = (np.hypot(*np.ogrid[-5:5, -6:6]) < 4).astype(np.uint8)


def hashes(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in Path(folder).rglob('*') if path.is_file()}


def manifest(folder: Path) -> dict:
    return json.loads((folder / 'manifest.json').read_text())


def encode(pixels, image_format='PNG', **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer, image_format, **options)
    return buffer.getvalue()


def picture(seed: int = 0, size: tuple[int, int] = (12, 10), **options) -> bytes:
    """A small JPEG of noise, width and height ``size``."""
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return encode(pixels, 'JPEG', **options)


def isic(folder: Path, images: dict[str, bytes], masks: dict[str, bytes], part: int = 0) -> Path:
    """An unpacked part of ISIC 2017; the names have no suffix."""
    for name, content, end in ((ISIC2017.parts[part].images, images, '.jpg'),
                               (ISIC2017.parts[part].masks, masks, '_segmentation.png')):
        (folder / name).mkdir(parents=True)
        for stem, data in content.items():
            (folder / name / f'{stem}{end}').write_bytes(data)
    return folder


def unpack(raw: Path, to: Path) -> Path:
    for path in raw.glob('*.zip'):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(to)
    return to


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, 'w') as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path
