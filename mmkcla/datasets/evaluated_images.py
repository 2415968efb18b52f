"""Find the images that two splits of a config share: those of the validation and of the test."""
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..utils.files import sha256_of
from ..utils.parallel import run_parallel
from .check import Dataset, datasets_of
from .classification.check import class_folder_of
from .detection.compare import index_of
from .image_files import MOST_BYTES
from .segmentation.check import mask_folder_of


def shared_images(config: Any, first: str, second: str) -> tuple[int, int] | None:
    """Count the images of a split that are also in another one, by path and by content.

    Args:
        config: the hosts must be imported.
        first, second: splits, as ``'val'`` and ``'test'``.

    Returns:
        How many images of ``second`` are in ``first``, and how many ``second`` has. None if the images of one of them
        are not files that can be listed here.
    """
    known, asked = images_of_split(config, first), images_of_split(config, second)
    if not known or not asked:
        return None
    same = set(map(os.path.realpath, known))
    others = [path for path in asked if os.path.realpath(path) not in same]
    return len(asked) - len(others) + len(_copies(known, others)), len(asked)


def images_of_split(config: Any, split: str) -> list[Path] | None:
    """The image files of a split; None if one of its data sets cannot be listed here."""
    try:
        if 'KFold' in str(config[f'{split}_dataloader']['dataset'].get('type')):  # a part that only the host knows
            return None
        found = [image_paths(dataset) for dataset in datasets_of(config, split)]
    except (UserError, KeyError, TypeError, AttributeError):  # the run reports what is wrong
        return None
    if not found or any(paths is None for paths in found):
        return None
    return [path for paths in found for path in paths or ()]


def image_paths(dataset: Dataset) -> list[Path] | None:
    """The image files of a data set: COCO files, class folders and lists, images with masks; None for other kinds.

    Raises:
        UserError: the host cannot build the data set.
    """
    paths: list[Path] | None = None
    if 'BaseDetDataset' in dataset.ancestors:
        if index := index_of(dataset):
            folder = dataset.path((dataset.config.get('data_prefix') or {}).get('img', ''))
            paths = [folder / str(name) for name in index.images.values()]
    elif 'BaseSegDataset' in dataset.ancestors:
        if masks := mask_folder_of(dataset):
            paths = [Path(part['img_path']) for part in masks.data]
    elif 'CustomDataset' in dataset.ancestors and (classes := class_folder_of(dataset)):
        paths = list(map(Path, classes.images))
    indices = dataset.config.get('indices')
    if paths is None or indices is None:
        return paths
    if isinstance(indices, int):
        return paths[:indices] if indices >= 0 else paths[indices:]
    return [paths[index] for index in indices if -len(paths) <= index < len(paths)]


def _copies(known: Sequence[Path], asked: Sequence[Path]) -> list[Path]:
    """The files of ``asked`` with the content of one in ``known``; of very large sets, those of an evenly spread part.
    """
    asked = [path for path in asked if path.is_file()]
    sizes = {path.stat().st_size for path in asked}
    known = [path for path in known if path.is_file() and path.stat().st_size in sizes]  # only these can be equal
    sizes = {path.stat().st_size for path in known}
    asked = [path for path in asked if path.stat().st_size in sizes]
    total = sum(path.stat().st_size for path in asked)
    if total > MOST_BYTES:
        count = max(1, int(len(asked) * MOST_BYTES / total))
        asked = [asked[i] for i in np.unique(np.linspace(0, len(asked) - 1, count).round().astype(int)).tolist()]
        sizes = {path.stat().st_size for path in asked}
        known = [path for path in known if path.stat().st_size in sizes]
    digests = set(run_parallel(sha256_of, known, None, False, 'images'))
    found = run_parallel(sha256_of, asked, None, False, 'images')
    return [path for path, digest in zip(asked, found, strict=True) if digest in digests]
