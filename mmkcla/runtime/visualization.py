"""Write the pictures of a test, one file for each image, and keep the test running if one cannot be drawn."""
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..utils.files import short_names
from ..utils.images import as_loaded, bit_depth
from ..utils.text import one_line

_DRAWING = ('add_datasample', 'visualize_cls')  # methods of mmdet's and mmseg's visualizers, and of mmpretrain's


def write_pictures(runner: Any, folder: Path) -> None:
    """Make the runner's visualizer write each picture to ``folder``, in the sub-folders of the images.

    The hosts name the files by the last part of the image's path, so that images of the same name in two folders
    would overwrite each other.

    Args:
        runner: with a test loop.
        folder: of the pictures.

    Raises:
        UserError: while drawing: a picture would overwrite its image.
    """
    names = picture_files(_image_paths(runner.test_loop.dataloader.dataset))
    for name in _DRAWING:
        if hasattr(runner.visualizer, name):
            setattr(runner.visualizer, name, _into_files(getattr(runner.visualizer, name), names, folder.resolve()))


def picture_files(paths: list[str]) -> dict[str, str]:
    """Name of the picture for each image: its path below the common folder; PNG unless the image is JPEG or PNG."""
    names = {}
    for path, short in zip(paths, short_names([os.path.abspath(path) for path in paths]), strict=True):
        short = os.path.splitdrive(short)[1].lstrip(os.sep)
        names[path] = short if short.lower().endswith(('.jpg', '.jpeg', '.png')) else f'{short}.png'
    return names


def _image_paths(dataset: Any) -> list[str]:
    try:
        found = [dataset.get_data_info(number).get('img_path') for number in range(len(dataset))]
    except (AttributeError, TypeError, NotImplementedError):  # not a data set of mmengine: named one by one
        return []
    return [str(path) for path in dict.fromkeys(found) if path]


def _into_files(draw: Callable, names: dict[str, str], folder: Path) -> Callable:
    parameters = list(inspect.signature(draw).parameters)
    taken: dict[str, str] = {}

    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        kwargs = dict(zip(parameters, args, strict=False)) | kwargs
        image_path = str(getattr(kwargs.get('data_sample'), 'img_path', None) or '')
        name = names.get(image_path) or _free(Path(image_path).name or 'image', image_path, taken)
        target = folder / name
        if image_path and target == Path(image_path).resolve():
            raise UserError(f'--show-dir {folder} contains the image {image_path}, which would be overwritten; choose '
                            'another folder')
        return draw(**kwargs | dict(image=_for_the_eye(kwargs.get('image'), image_path), out_file=str(target)))

    return drawn


def _free(name: str, path: str, taken: dict[str, str]) -> str:
    """A file name for an image that the data set does not list: numbered unless it is free."""
    stem, suffix = os.path.splitext(name)
    suffix = suffix if suffix.lower() in ('.jpg', '.jpeg', '.png') else f'{suffix}.png'
    chosen, number = f'{stem}{suffix}', 1
    while chosen in taken and not (path and taken[chosen] == path):
        number += 1
        chosen = f'{stem}_{number}{suffix}'
    taken[chosen] = path
    return chosen


def _for_the_eye(image: Any, path: str) -> Any:
    """The image with its contrast stretched if it has more than 8 bits, which the hosts would show dark."""
    if path.lower().endswith(('.jpg', '.jpeg', '.webp', '.bmp')) or not isinstance(image, np.ndarray):
        return image
    try:
        if bit_depth(Path(path).read_bytes())[0] <= 8:
            return image
        stretched = np.asarray(as_loaded(Path(path), stretch=True))
    except (OSError, UserError):
        return image
    return stretched if stretched.shape == image.shape else image


def skip_what_cannot_be_drawn(runner: Any) -> None:
    """Make the runner's visualizer log and skip pictures that it cannot draw (mmseg's fails on 1×1 images). Errors of
    the file system are still raised."""
    for name in _DRAWING:
        if hasattr(runner.visualizer, name):
            setattr(runner.visualizer, name, _guarded(getattr(runner.visualizer, name), runner.logger))


def _guarded(draw: Callable, logger: Any) -> Callable:
    @functools.wraps(draw)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return draw(*args, **kwargs)
        except (OSError, UserError):
            raise
        except Exception as error:
            picture = _path(args, kwargs)
            logger.warning(f'{picture} cannot be drawn; skipped: {type(error).__name__}: '
                           f'{one_line(error)}')
            return None

    return guarded


def _path(args: tuple, kwargs: dict) -> str:
    """Return the path of the image, else the name of the picture."""
    sample = kwargs.get('data_sample', args[2] if len(args) > 2 else None)
    return str(getattr(sample, 'img_path', None) or kwargs.get('name') or (args[0] if args else 'an image'))
