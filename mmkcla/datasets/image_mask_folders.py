"""Recognise folders of images and of their masks where folders of classes are expected."""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ..utils.images import IMAGE_SUFFIXES
from .findings import Finding
from .segmentation.converters.pairing import find_affix

_MOST_FOLDERS = 8  # more folders are classes
_SAMPLES = 8  # masks that are decoded
_MOST_COLOURS = 32  # of a mask; a photograph has more
_SHARE = 0.9  # of the files that have a partner
_IMAGE_WORD = re.compile('ima?ge?s?|jpegimages')
_MASK_WORD = re.compile('masks?|labels?|lbls?|gts?|groundtruth|truths?|annotations?|anno?s?|segs?|segmentations?|'
                        'segmentationclass|targets?|trimaps?')


@dataclass(frozen=True)
class ImagesAndMasks:
    """A folder of images and a folder of their masks; ``named``: whether the names of the folders say so, too."""

    images: Path
    masks: Path
    named: bool

    def finding(self) -> Finding:
        """Refuses class folders that are not; a remark where only the content of the files looks like that."""
        what = (f'{self.masks} has masks of the images in {self.images}: these are not classes' if self.named else
                f'{self.masks} looks like masks of the images in {self.images}: if so, these are not classes')
        return Finding(f'{what}; prepare them with mmkcla data binary-seg {self.images} {self.masks}, or run mmkcla '
                       f'plan segmentation --images {self.images} --masks {self.masks}', self.named)


def find_images_and_masks(folders: Sequence[Path]) -> ImagesAndMasks | None:
    """Find two folders whose files have the same names, of which one has masks and the other has not.

    Masks are files of at most 32 values or colours. Names may differ by one text before or after them (``a_mask.png``).

    Args:
        folders: that are taken for classes.
    """
    if not 2 <= len(folders) <= _MOST_FOLDERS:
        return None
    files = {folder: sorted(path for path in folder.rglob('*') if path.suffix.lower() in IMAGE_SUFFIXES)
             for folder in folders}
    masks = {folder: _are_masks(paths) for folder, paths in files.items()}
    for images in folders:
        for other in folders:
            if masks[other] and not masks[images] and _same_names(files[images], files[other]):
                return ImagesAndMasks(images, other, _named(images, _IMAGE_WORD) or _named(other, _MASK_WORD))
    return None


def _named(folder: Path, word: re.Pattern[str]) -> bool:
    return any(word.fullmatch(part) for part in re.findall('[a-z]+', folder.name.lower()))


def _are_masks(paths: Sequence[Path]) -> bool:
    """Whether evenly spread samples have one channel or a palette, and few values."""
    if not paths:
        return False
    places = np.unique(np.linspace(0, len(paths) - 1, _SAMPLES).round().astype(int)).tolist()
    return all(_is_mask(paths[place]) for place in places)


def _is_mask(path: Path) -> bool:
    try:
        with Image.open(path) as picture:
            return picture.format not in ('JPEG', 'MPO') and picture.getcolors(_MOST_COLOURS) is not None
    except Exception:  # damaged: the check of the files reports it
        return False


def _same_names(images: Sequence[Path], masks: Sequence[Path]) -> bool:
    first, second = {path.stem for path in images}, {path.stem for path in masks}
    smaller, larger = sorted(map(len, (first, second)))
    if not smaller or smaller < _SHARE * larger:
        return False
    affix = find_affix(sorted(first), sorted(second))
    stripped = {name[len(affix.mask[0]):len(name) - len(affix.mask[1])] for name in second
                if name.startswith(affix.mask[0]) and name.endswith(affix.mask[1])}
    kept = {name[len(affix.image[0]):len(name) - len(affix.image[1])] for name in first
            if name.startswith(affix.image[0]) and name.endswith(affix.image[1])}
    return len(stripped & kept) >= _SHARE * larger
