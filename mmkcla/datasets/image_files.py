"""Properties of the image files of a data set: size, channels, bit depth, content hash, damage."""
from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from mmcv.image import rescale_size
from PIL import Image

from ..utils.images import bit_depth, image_problem, orientation_of, upright_size
from ..utils.parallel import run_parallel
from ..utils.text import one_line, plural
from .findings import Finding
from .pipelines import steps_of
from .sound_images import remember, sound_digests

_DEPTHS = 50  # images of more than 8 bits whose values are looked at
_FEW_BITS = 14  # a whole data set that stays within so few of 16 bits was meant to have fewer
MOST_BYTES = 2 ** 30  # read before a run; of larger data sets an evenly spaced part
_CHANNELS = {'1': 1, 'L': 1, 'P': 3, 'RGB': 3, 'RGBA': 4, 'CMYK': 4, 'YCbCr': 3, 'LAB': 3, 'HSV': 3, 'LA': 2, 'PA': 4,
             'I': 1, 'F': 1}
_BITS = {'1': 1, 'I': 32, 'F': 32}

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
        orientation: of the EXIF data, 1 to 8; 1 is upright.
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
    orientation: int = 1

    @property
    def turned_unseen(self) -> bool:
        """Whether the EXIF orientation turns or mirrors the image without a change of width and height."""
        return self.orientation != 1 and self.stored == (self.width, self.height)


def read_images(paths: Sequence[Path], title: str = 'images', decode: bool = False, workers: int | None = None,
                progress: bool | None = None) -> list[ImageFile]:
    """Read headers and hashes of all files, and look for damage; damaged files do not raise, see ``problem``.

    Files that were found sound once (by content) are not decoded again, see :mod:`.sound_images`.

    Args:
        paths: the files.
        title: of the progress bar.
        decode: decode all files, whatever is remembered of them.
        workers, progress: see :func:`mmkcla.utils.parallel.run_parallel`.
    """
    known = set() if decode else sound_digests()
    images = run_parallel(partial(_read, decode=decode, known=known), paths, workers, progress, title)
    remember({image.sha256 for image in images if image.problem is None} - known)
    return images


def _read(path: Path, decode: bool = False, known: Collection[str] = ()) -> ImageFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        return ImageFile(path, 0, 0, 0, 0, '', (error.strerror or str(error)).lower())
    digest = hashlib.sha256(data).hexdigest()
    problem = image_problem(data, decode=digest not in known)
    if problem is None:
        try:
            with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as picture:
                warnings.simplefilter('ignore')
                if decode:  # before the EXIF data of a PNG is read, which hides the errors of its pixels
                    picture.load()
                channels, bits = _pixel_format(picture, data)
                frames = 1 if picture.format == 'MPO' else getattr(picture, 'n_frames', 1)
                width, height = upright_size(picture)
                return ImageFile(path, width, height, channels, bits, digest, None, frames, picture.size,
                                 orientation_of(picture))
        except Image.UnidentifiedImageError:
            problem = 'it is not an image'
        except Exception as error:  # Pillow's plugins raise what they like
            problem = one_line(error, 120)
    return ImageFile(path, 0, 0, 0, 0, digest, problem)


def _pixel_format(picture: Image.Image, data: bytes) -> tuple[int, int]:
    """Channels and bits of a channel as stored; Pillow opens RGB of 16 bits as 8."""
    mode = picture.mode
    channels, bits = _CHANNELS.get(mode, 1), 16 if mode.startswith('I;16') else _BITS.get(mode, 8)
    stored, _ = bit_depth(data)
    if stored > 8 or bits > 8 or picture.format == 'TIFF':
        bits = stored
    if picture.format == 'TIFF':
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


def depth_findings(images: Sequence[ImageFile], loader: dict | None) -> list[Finding]:
    """Find images that the loader of the pipeline would not show as they are meant, because of their bit depth.

    Args:
        images: the files that were read.
        loader: the ``LoadImageFromFile`` step of the pipeline; None or ``color_type='unchanged'``: nothing to check.
    """
    if loader is None or loader.get('color_type') == 'unchanged' or loader.get('imdecode_backend') == 'tifffile':
        return []
    findings = []
    if wide := [str(image.path) for image in images if image.bits > 16]:
        findings.append(Finding(f'{plural(len(wide), "image")} of 32-bit or floating-point values, whose range is '
                                'unknown; save them with 8 or 16 bits per channel', True, len(wide), wide))
    deep = [image.path for image in images if 8 < image.bits <= 16]
    if not deep:
        return findings
    names = list(map(str, deep))
    if 'mmkcla' not in (loader.get('_scope_'), str(loader.get('type')).partition('.')[0]):
        findings.append(Finding(f"{plural(len(deep), 'image')} of more than 8 bits, of which {loader.get('type')} "
                                "drops the low ones; use type='mmkcla.LoadImageFromFile' in all pipelines, for 12 bits "
                                'with bits=12', True, len(deep), names))
    elif loader.get('bits') is None:
        bits, highest = significant_bits(deep)
        if bits is not None:
            findings.append(Finding(f'{plural(len(deep), "image")} of 16 bits with values up to {highest} only, so '
                                    f'that they would be dark; set bits={bits} in mmkcla.LoadImageFromFile of all '
                                    'pipelines (bits=16 if they are meant to be dark)', True, len(deep), names))
    return findings


def significant_bits(deep: Sequence[Path]) -> tuple[int | None, int]:
    """Bits that the values of images of 9 to 16 bits need, and their largest value, from up to 50 of them.

    Returns:
        9, 10, 12 or 14 bits, or None where the values use more (or no more than 8); the largest value.
    """
    if not deep:
        return None, 0
    chosen = [deep[i] for i in np.unique(np.linspace(0, len(deep) - 1, _DEPTHS).round().astype(int)).tolist()]
    highest = max(run_parallel(_highest, chosen, None, False))
    if not 255 < highest < 2 ** _FEW_BITS:
        return None, highest
    return next(bits for bits in (9, 10, 12, 14) if highest < 2 ** bits), highest


def shape_findings(images: Sequence[ImageFile], pipeline: Any) -> list[Finding]:
    """Find images so long and narrow that a resize which keeps their ratio leaves no pixel of the shorter side.

    Args:
        images: the files that were read.
        pipeline: the steps of the data set.
    """
    thin = {}
    for step in steps_of(pipeline):
        for image in images:
            if image.problem is None and 0 in (resized((image.width, image.height), step) or (1, 1)):
                thin[str(image.path)] = f'{image.path} ({image.width}×{image.height})'
    if not thin:
        return []
    return [Finding(f'{plural(len(thin), "image")} so narrow that the resize of the pipeline leaves nothing of them; '
                    'remove or crop them', True, len(thin), list(thin.values()))]


def resized(size: tuple[int, int], step: dict) -> tuple[int, int] | None:
    """Width and height that a ``Resize`` which keeps the ratio makes of an image; None for other steps.

    Args:
        size: width and height of the image.
        step: of a pipeline.
    """
    scale = step.get('scale')
    if (str(step.get('type')).split('.')[-1] == 'Resize' and step.get('keep_ratio')
            and isinstance(scale, (list, tuple)) and len(scale) == 2):
        return rescale_size(size, tuple(scale))
    return None


def _highest(path: Path) -> int:
    """Largest value of an image, scaled to 16 bits where the file declares a largest value; 0 if unreadable."""
    data = path.read_bytes()
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    _, declared = bit_depth(data)
    if pixels is None or pixels.dtype != np.uint16:
        return 0
    if pixels.ndim == 3 and pixels.shape[2] in (2, 4):  # alpha is opaque in dark images, too
        pixels = pixels[..., :-1]
    return int(pixels.max(initial=0)) * 65535 // (declared or 65535)


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
