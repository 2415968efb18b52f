"""Compare a COCO file with the headers of the image files, and these with the pipeline."""
from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ....utils.images import ORIENTATION, image_problem, upright_size
from ....utils.parallel import run_parallel
from ....utils.text import plural
from ...findings import PLACES
from ...image_files import ImageFile, depth_findings, read_images, shape_findings
from ...pipelines import image_loader
from ...report import NOTE, REFUSED, Fault, faults_of
from .table import Table

MOST_READ = 2000  # headers read before a run; evenly spaced in larger data sets
_FEW = 0.001  # share of images below which another size is a remark


def header_faults(table: Table, folder: Path, upright: bool = True, most: int | None = MOST_READ,
                  part: np.ndarray | None = None) -> list[Fault]:
    """Images whose size in their file is another one than ``width`` and ``height`` say.

    Args:
        table: the annotation file.
        folder: of the images.
        upright: whether the pipeline applies the EXIF orientation on loading, as OpenCV does.
        most: number of headers to read; None: all.
        part: indices of the images of the data set; None: all.
    """
    chosen = evenly(table, most, part)
    count = len(table.names) if part is None else len(part)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        read = run_parallel(_sizes, [folder / table.names[i] for i in chosen], title='image headers')
    unreadable, wrong, turned, flipped = [], [], [], []
    for i, found in zip(chosen.tolist(), read, strict=True):
        name, said = table.names[i], tuple(table.sizes[i])
        if found is None:
            unreadable.append(f'{name}: {_reason(folder / name)}')
            continue
        if np.isnan(said).any():  # a fault of the file, which is reported as such
            continue
        stored, loaded, orientation = found
        right, other = (loaded, stored) if upright else (stored, loaded)
        if said == right:
            if orientation in (2, 3, 4) or orientation in (5, 6, 7, 8) and stored == loaded:
                flipped.append(name)
        elif said == other:
            turned.append(f'{name}: {_size(said)}, loaded as {_size(right)}')
        else:
            wrong.append(f'{name}: {_size(said)}, the file has {_size(right)}')
    part = '' if len(chosen) == count else f'; {plural(len(chosen), "header")} of {count} were read'
    remedy = ("the labels are in the stored orientation; set color_type='color_ignore_orientation' in each "
              'LoadImageFromFile of the pipelines, or save the images upright' if upright else
              "the labels are in the upright orientation; remove color_type='color_ignore_orientation'")
    few = len(wrong) < _FEW * len(chosen)
    return [fault for fault in (
        Fault('images that EXIF turns on its side on loading, unlike width and height', REFUSED, len(turned),
              turned[:PLACES], remedy + part),
        Fault('images with another width or height than their file', NOTE if few else REFUSED, len(wrong),
              wrong[:PLACES], 'resized after labelling? Boxes are in pixels of the labelled image; use those images, '
              'or scale the boxes' + part),
        Fault('images that cannot be opened', REFUSED, len(unreadable), unreadable[:PLACES],
              'replace or remove them' + part),
        Fault('images that EXIF turns or mirrors without a change of width and height', NOTE, len(flipped),
              flipped[:PLACES], 'see the pictures of mmkcla data verify whether the labels fit' + part)) if fault.count]


def evenly(table: Table, most: int | None, part: np.ndarray | None = None) -> np.ndarray:
    """Indices of at most ``most`` images, evenly spaced over the file, or over a part of it."""
    part = np.arange(len(table.names)) if part is None else part
    if most is None or len(part) <= most:
        return part
    return part[np.unique(np.linspace(0, len(part) - 1, most).round().astype(int))]


def pixel_faults(table: Table, folder: Path, pipeline: Any, most: int | None = MOST_READ,
                 part: np.ndarray | None = None) -> list[Fault]:
    """Images with damaged data, whose bit depth the pipeline does not load as it is meant, or that its resize leaves
    nothing of.

    Args:
        table, folder, most, part: see :func:`header_faults`; the sizes of the table must be those of the files.
        pipeline: the steps of the data set.
    """
    chosen = evenly(table, most, part).tolist()
    paths = [folder / table.names[i] for i in chosen]
    whole = len(chosen) == (len(table.names) if part is None else len(part))
    # of a part of a large data set, which says little about the rest, JPEGs are not decoded
    jpeg = [False] * len(paths) if whole else run_parallel(_is_jpeg, paths, title='image headers')
    sized = [ImageFile(path, *(int(side) for side in table.sizes[i]), 3, 8, '')  # a JPEG has 8 bits
             for i, path, known in zip(chosen, paths, jpeg, strict=True) if known and (table.sizes[i] > 0).all()]
    read = read_images([path for path, known in zip(paths, jpeg, strict=True) if not known], decode=most is None)
    damaged = [f'{image.path.relative_to(folder)}: {image.problem}' for image in read if image.problem]
    return [*([Fault('images with damaged data', REFUSED, len(damaged), damaged[:PLACES], 'replace or remove them')]
              if damaged else []),
            *faults_of(depth_findings(read, image_loader(pipeline)) + shape_findings(sized + read, pipeline))]


def _is_jpeg(path: Path) -> bool:
    try:
        with path.open('rb') as file:
            return file.read(2) == b'\xff\xd8'
    except OSError:  # header_faults reports it
        return True


def _sizes(path: Path) -> tuple[tuple[int, int], tuple[int, int], int] | None:
    """Size as stored, size upright, EXIF orientation; None if the header cannot be read."""
    try:
        with Image.open(path) as picture:
            upright = upright_size(picture)
            orientation = picture.getexif().get(ORIENTATION, 1) if picture.format != 'TIFF' else 1
            return picture.size, upright, orientation
    except Exception:  # Pillow's plugins raise what they like
        return None


def _reason(path: Path) -> str:
    try:
        return image_problem(path.read_bytes()) or 'not an image, or of an unknown format'
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _size(size: tuple) -> str:
    return f'{size[0]:g}×{size[1]:g}'
