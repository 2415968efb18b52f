"""Find the images of a data set, and summarise their sizes, formats and pixels."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..datasets.image_files import ImageFile, significant_bits
from ..datasets.transforms.loading import LoadImageFromFile
from ..utils.images import IMAGE_SUFFIXES, as_loaded
from .fingerprint import ImageSummary, Problem, quantiles

_STATISTICS = 200  # images decoded for mean and standard deviation


def find_images(folder: Path) -> list[Path]:
    """All image files below ``folder`` without hidden ones, in the order of their relative names."""
    found = [path for path in folder.rglob('*') if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()
             and not any(part.startswith('.') for part in path.relative_to(folder).parts)]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def other_files(folder: Path) -> list[Path]:
    """The files below ``folder`` that :func:`find_images` skips, without hidden ones and those of the system."""
    found = [path for path in folder.rglob('*') if path.is_file() and path.suffix.lower() not in IMAGE_SUFFIXES
             and path.name.lower() not in ('thumbs.db', 'desktop.ini')
             and not any(part.startswith('.') for part in path.relative_to(folder).parts)]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def summarise(images: Sequence[ImageFile]) -> ImageSummary:
    """Sizes, formats, and mean and standard deviation of the pixels as a network gets them (RGB, 0 to 255)."""
    readable = [image for image in images if image.problem is None]
    bits, _ = significant_bits([image.path for image in readable if 8 < image.bits <= 16])
    mean, std = pixel_statistics(readable, bits)
    return ImageSummary(
        count=len(images), width=quantiles([image.width for image in readable]),
        height=quantiles([image.height for image in readable]),
        longer=quantiles([max(image.width, image.height) for image in readable]),
        shorter=quantiles([min(image.width, image.height) for image in readable]),
        channels=_counted(image.channels for image in readable), bits=_counted(image.bits for image in readable),
        mean=mean, std=std, significant_bits=bits)


def _counted(values: Iterable[int]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}


def pixel_statistics(images: Sequence[ImageFile], bits: int | None = None) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of red, green and blue over at most 200 images, spread evenly over the list.

    Args:
        images: readable ones.
        bits: of ``mmkcla.LoadImageFromFile``, for images of 16 bits.
    """
    if not images:
        return [0.] * 3, [1.] * 3
    chosen = [images[i] for i in sorted({round(i) for i in np.linspace(0, len(images) - 1, _STATISTICS)})]
    sums, squares, pixels = np.zeros(3), np.zeros(3), 0
    loader = LoadImageFromFile(bits=bits)
    for image in chosen:
        if 8 < image.bits <= 16:
            pixels_of = loader.decode(image.path.read_bytes())
            values = (np.zeros((0, 3)) if pixels_of is None else pixels_of[..., ::-1].reshape(-1, 3).astype(np.float64))
        else:
            values = np.asarray(as_loaded(image.path)).reshape(-1, 3).astype(np.float64)
        sums, squares, pixels = sums + values.sum(0), squares + (values ** 2).sum(0), pixels + len(values)
    mean = sums / pixels
    std = np.sqrt(np.maximum(squares / pixels - mean ** 2, 1.))
    return mean.round(1).tolist(), std.round(1).tolist()


def file_problems(images: Sequence[ImageFile], root: Path) -> list[Problem]:
    """Files that cannot be read, and formats that change on loading."""
    def names(chosen: Iterable[ImageFile]) -> list[str]:
        return [shown(image.path, root) for image in chosen]

    damaged = [image for image in images if image.problem]
    found = [Problem('unreadable images', [f'{shown(image.path, root)} ({image.problem})' for image in damaged],
                     fatal=True)]
    readable = [image for image in images if not image.problem]
    found.append(Problem('images with more than 4 channels, which the loaders cannot take',
                         names(image for image in readable if image.channels > 4), fatal=True))
    found.append(Problem('images with an alpha channel (it is left out) or in CMYK',
                         names(image for image in readable if image.channels in (2, 4))))
    deep = [image for image in readable if image.bits > 8]
    bits, _ = significant_bits([image.path for image in deep if image.bits <= 16])
    largest = 2 ** (bits or 16) - 1
    found.append(Problem(f'images of more than 8 bits a channel (scaled to 8 bits: {largest} becomes 255)',
                         names(deep)))
    return [problem for problem in found if problem.places]


def held_out(images: Sequence[ImageFile], share: float) -> set[str]:
    """Hashes of the images to hold out: those of the smallest SHA-256, about ``share`` of all and at least one.

    Copies of an image are on one side, and an image stays on its side when others are added.
    """
    digests = sorted({image.sha256 for image in images})
    return set(digests[:max(1, round(len(digests) * share))]) if len(digests) > 1 else set()


def shown(path: Path, root: Path) -> str:
    """A path for messages: relative to ``root`` where it lies below."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
