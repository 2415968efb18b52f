"""Find input images, and choose the names of their output pictures."""
import glob
import os
from collections.abc import Iterator
from pathlib import Path, PurePath

from ..errors import UserError
from ..utils.files import short_names
from ..utils.images import IMAGE_SUFFIXES


def find_images(inputs: list[str]) -> list[Path]:
    """Expand inputs to image files: files, the images in folders, and glob patterns that the shell did not expand.

    Raises:
        UserError: an input does not exist, or a folder contains no images.
    """
    images: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
            if not inside:
                deeper = next((file.parent for file in path.rglob('*') if file.suffix.lower() in IMAGE_SUFFIXES), None)
                hint = f'; there are some in {deeper}' if deeper else ''
                raise UserError(f'no images in {path} (looked for {" ".join(IMAGE_SUFFIXES)}){hint}')
            images += inside
        elif path.is_file():
            images.append(path)
        elif any(mark in name for mark in '*?[') and (matches := sorted(glob.glob(name))):
            images += map(Path, matches)
        else:
            raise UserError(f'no such image or folder: {name}')
    return list(dict.fromkeys(images))


def picture_names(images: list[Path]) -> dict[Path, str]:
    """Choose an output name for each image: its own name (JPEG stays JPEG, everything else becomes PNG), below the
    folder that distinguishes it where the images are in several. It gets a number if it would collide with another
    output, including ``x_mask.png`` and ``x_probability.png``."""
    taken: set[str] = set()
    names = {}
    for path, short in zip(images, short_names([os.path.abspath(path) for path in images]), strict=True):
        suffix = '.jpg' if path.suffix.lower() in ('.jpg', '.jpeg') else '.png'
        for stem in _numbered(PurePath(os.path.splitdrive(short)[1].lstrip(os.sep)).with_suffix('').as_posix()):
            wanted = {f'{stem}{part}'.casefold() for part in ('', '_mask', '_probability')}
            if not wanted & taken:
                break
        taken |= wanted
        names[path] = stem + suffix
    return names


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f'{stem}_{number}'
        number += 1
