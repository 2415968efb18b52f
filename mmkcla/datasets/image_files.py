"""Properties of the image files of a data set: size, channels, bit depth, content hash, damage."""
from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from ..utils.images import image_problem, upright_size
from ..utils.parallel import run_parallel
from ..utils.text import one_line, plural
from .findings import Finding

MOST_BYTES = 2 ** 30  # read before a run; of larger data sets an evenly spaced part
_CHANNELS = {'1': 1, 'L': 1, 'P': 3, 'RGB': 3, 'RGBA': 4, 'CMYK': 4, 'YCbCr': 3, 'LAB': 3, 'HSV': 3, 'LA': 2, 'PA': 4,
             'I': 1, 'F': 1}
_BITS = {'1': 1, 'I': 32, 'F': 32}
_PNG = b'\x89PNG\r\n\x1a\n'

Image.init()  # loads the readers; not safe in several threads at once


@dataclass(frozen=True)
class ImageFile:
    """One image file.

    Attributes:
        path: of the file.
        width, height: in pixels, upright (after its EXIF orientation); 0 where it cannot be read.
        channels, bits: as stored; bits of one channel.
        sha256: of the file's bytes; '' where they cannot be read.
        problem: why it cannot be read; None if it can.
        frames: number of pages or frames.
        stored: width and height without the EXIF orientation.
    """

    path: Path
    width: int
    height: int
    channels: int
    bits: int
    sha256: str
    problem: str | None = None
    frames: int = 1
    stored: tuple[int, int] = (0, 0)


def read_images(paths: Sequence[Path], title: str = 'images', decode: bool = False, workers: int | None = None,
                progress: bool | None = None) -> list[ImageFile]:
    """Read headers and hashes of all files; damaged files do not raise, see ``problem``.

    Args:
        paths: the files.
        title: of the progress bar.
        decode: also decode all pixels, which finds damage behind the header.
        workers, progress: see :func:`mmkcla.utils.parallel.run_parallel`.
    """
    return run_parallel(partial(_read, decode=decode), paths, workers, progress, title)


def _read(path: Path, decode: bool = False) -> ImageFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        return ImageFile(path, 0, 0, 0, 0, '', (error.strerror or str(error)).lower())
    digest = hashlib.sha256(data).hexdigest()
    problem = image_problem(data)
    if problem is None:
        try:
            with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as picture:
                warnings.simplefilter('ignore')
                channels, bits = _pixel_format(picture, data)
                frames = 1 if picture.format == 'MPO' else getattr(picture, 'n_frames', 1)
                width, height = upright_size(picture)
                size = picture.size
                if decode:
                    picture.load()
                return ImageFile(path, width, height, channels, bits, digest, None, frames, size)
        except Image.UnidentifiedImageError:
            problem = 'it is not an image'
        except Exception as error:  # Pillow's plugins raise what they like
            problem = one_line(error, 120)
    return ImageFile(path, 0, 0, 0, 0, digest, problem)


def _pixel_format(picture: Image.Image, data: bytes) -> tuple[int, int]:
    """Channels and bits of a channel as stored; Pillow opens RGB of 16 bits as 8."""
    mode = picture.mode
    channels, bits = _CHANNELS.get(mode, 1), 16 if mode.startswith('I;16') else _BITS.get(mode, 8)
    if data.startswith(_PNG):
        bits = max(bits if bits != 32 else 16, data[24]) if data[24] > 8 else bits
    elif picture.format == 'TIFF':
        stored = picture.tag_v2.get(258, bits)
        bits = max(stored) if isinstance(stored, tuple) else stored
        channels = max(channels, picture.tag_v2.get(277, 1))
    return channels, bits


def copies_between(first: Iterable[ImageFile], second: Iterable[ImageFile]) -> list[ImageFile]:
    """The images of ``second`` with the same bytes as an image of ``first``."""
    known = {image.sha256 for image in first if image.sha256}
    return [image for image in second if image.sha256 in known]


def copies_within(images: Sequence[ImageFile]) -> list[ImageFile]:
    """The images with the same bytes as an earlier one in the list."""
    seen: set[str] = set()
    again = []
    for image in images:
        if image.sha256 in seen:
            again.append(image)
        seen.add(image.sha256)
    return [image for image in again if image.sha256]


def read_spread(paths: Sequence[Path], decode: bool = False, workers: int | None = None) -> list[ImageFile]:
    """Read at most about :data:`MOST_BYTES` of the files, evenly spread over the list; all files with ``decode``."""
    total = sum(path.stat().st_size for path in paths if path.is_file())
    if not decode and total > MOST_BYTES:
        count = max(1, int(len(paths) * MOST_BYTES / total))
        paths = [paths[i] for i in np.unique(np.linspace(0, len(paths) - 1, count).round().astype(int)).tolist()]
    return read_images(paths, decode=decode, workers=workers, progress=None if decode else False)


def file_findings(images: Sequence[ImageFile], total: int, what: str = 'image') -> list[Finding]:
    """Findings about files: those that cannot be read, and those with several pages.

    Args:
        images: the files that were read.
        total: number of files of the data set.
        what: noun for the messages.
    """
    missing = [str(image.path) for image in images if image.problem and not image.sha256]
    damaged = [f'{image.path} ({image.problem})' for image in images if image.problem and image.sha256]
    paged = [str(image.path) for image in images if image.frames > 1]
    findings = []
    if missing:
        findings.append(Finding(f'{len(missing)} of {plural(len(images), what)} do not exist', True, len(missing),
                                missing))
    if damaged:
        findings.append(Finding(f'{len(damaged)} of {plural(len(images), what)} cannot be read; replace or remove them',
                                True, len(damaged), damaged))
    if paged:
        findings.append(Finding(f'{len(paged)} of {plural(len(images), what)} have several pages or frames, of which '
                                'only the first is used', False, len(paged), paged))
    if len(images) < total:
        findings.append(Finding(f'only {len(images)} of {total} {what}s were read, evenly spread; mmkcla data verify '
                                'reads all'))
    return findings


def leak(first: Sequence[ImageFile], second: Sequence[ImageFile], where: str) -> list[Finding]:
    """Find images of a validation or test set that are also trained on, by their bytes.

    Args:
        first: images of the training set.
        second: images of the set that is checked.
        where: config key of the training set.
    """
    copies = [str(image.path) for image in copies_between(first, second)]
    if not copies:
        return []
    return [Finding(f'{len(copies)} of {plural(len(second), "image")} are also in {where}, so the metrics are too '
                    'optimistic', False, len(copies), copies)]
