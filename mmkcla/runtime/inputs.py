"""Find input images, and choose the names of their output pictures."""
import glob
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath

from ..errors import UserError
from ..utils.files import short_names
from ..utils.images import IMAGE_SUFFIXES
from ..utils.text import listed, note, plural

_OF_SYSTEMS = {'Thumbs.db', 'desktop.ini'}
_OUTPUT = 'predictions.json'  # in the folder of an earlier inference


def find_images(inputs: list[str]) -> list[Path]:
    """Expand inputs to image files: files, the images in folders, and glob patterns that the shell did not expand.

    Sub-folders and other files of a folder are not read; a note on stderr counts and names them.

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
    for folder in dict.fromkeys(path for path in map(Path, inputs) if path.is_dir()):
        _report_skipped(folder, set(images))
    return list(dict.fromkeys(images))


def _report_skipped(folder: Path, used: set[Path]) -> None:
    """Name the images in sub-folders and the files of other types that are left out; hidden files are not counted."""
    visible = [path for path in sorted(folder.iterdir()) if not path.name.startswith('.') and path not in used]
    others = [path for path in visible if path.is_file() and path.name not in _OF_SYSTEMS]
    if others:
        suffixes = Counter(path.suffix.lower() or 'no suffix' for path in others)
        kinds = ', '.join(f'{count} {suffix}' for suffix, count in sorted(suffixes.items()))
        note(f'{plural(len(others), "file")} in {folder} skipped, not of the types {" ".join(IMAGE_SUFFIXES)} '
             f'({kinds}): {listed([path.name for path in others])}')
    below = {path: sum(file.suffix.lower() in IMAGE_SUFFIXES and file.is_file() and file not in used
                       for file in path.rglob('*'))
             for path in visible if path.is_dir() and not (path / _OUTPUT).is_file()}
    below = {path: count for path, count in below.items() if count}
    if below:
        note(f'{plural(sum(below.values()), "image")} in sub-folders of {folder} skipped; give the folders too: '
             f'{listed(below)}')


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
