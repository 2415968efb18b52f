"""Two-class data sets in the layout of the converters."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mmseg.datasets import BaseSegDataset

from ...errors import UserError
from ...registry import DATASETS
from ...utils.images import IMAGE_SUFFIXES
from ...utils.text import listed
from .converters.folds import names_of_fold

DEFAULT = dict(classes=('background', 'foreground'), palette=[[0, 0, 0], [255, 160, 0]])


@DATASETS.register_module()
class BinarySegDataset(BaseSegDataset):
    """Images and PNG masks (0 and 1) with the same names, in two folders.

    Args:
        data_root: a folder written by a converter.
        split: ``'train'``, ``'val'`` or ``'test'``: short for
            ``data_prefix=dict(img_path='images/<split>', seg_map_path='masks/<split>')``.
        fold: for a data set prepared with folds: ``split='val'`` is this fold of the training images, and
            ``split='train'`` the remaining folds.
        metainfo: ``dict(classes=('background', <name>))``; default: ``('background', 'foreground')``.
        kwargs: passed to mmseg's ``BaseSegDataset``.

    Raises:
        UserError: there are no images, an image has no mask, the fold does not exist, or there are not two classes.
    """

    METAINFO: ClassVar[dict] = {}

    def __init__(self, data_root: str | None = None, split: str | None = None, fold: int | None = None,
                 metainfo: dict | None = None, **kwargs: Any) -> None:
        self.fold, self.split = fold, split
        if fold is not None and (split not in ('train', 'val') or data_root is None):
            raise UserError(f"{type(self).__name__}: fold={fold} needs data_root and split='train' or 'val', got "
                            f'data_root={data_root!r} and split={split!r}')
        if split is not None:
            folder = split if fold is None else 'train'
            kwargs['data_prefix'] = dict(img_path=f'images/{folder}', seg_map_path=f'masks/{folder}')
        if 'classes' not in self.METAINFO:
            metainfo = {**DEFAULT, **(metainfo or {})}
        refuse_other_than_two(self._load_metainfo(copy.deepcopy(metainfo))['classes'], type(self).__name__)
        super().__init__(data_root=data_root, metainfo=metainfo, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Pair images and masks by their names."""
        images, masks = Path(self.data_prefix['img_path']), self.data_prefix.get('seg_map_path')
        found = sorted(path for path in images.glob('*') if path.suffix.lower() in IMAGE_SUFFIXES)
        if self.fold is not None:
            found = self._of_fold(found)
        if not found:
            raise UserError(f'{type(self).__name__}: no images ({" ".join(IMAGE_SUFFIXES)}) in {images}'
                            + ('' if images.is_dir() else ', which does not exist')
                            + f'; {_how_to_create(images)}')
        data = [dict(img_path=str(path), label_map=self.label_map, reduce_zero_label=self.reduce_zero_label,
                     seg_fields=[]) for path in found]
        if masks is not None and not (self.test_mode and not Path(masks).is_dir()):
            bare = []
            for path, entry in zip(found, data, strict=True):
                mask = Path(masks) / f'{path.stem}{self.seg_map_suffix}'
                entry['seg_map_path'] = str(mask)
                if not mask.is_file():
                    bare.append(path.name)
            if bare:
                raise UserError(f'{type(self).__name__}: {len(bare)} of {len(found)} images have no mask in {masks} '
                                f'({", ".join(bare[:3])}{", …" if len(bare) > 3 else ""})')
        return data

    def _of_fold(self, found: list[Path]) -> list[Path]:
        names, everything = names_of_fold(self.data_root, self.fold, self.split)
        if lost := sorted(everything.symmetric_difference(path.stem for path in found)):
            raise UserError(f'{type(self).__name__}: the folds of {self.data_root} do not match its training images: '
                            f'{listed(lost)}; prepare it again with --overwrite')
        return [path for path in found if path.stem in names]


def _how_to_create(images: Path) -> str:
    """Return the commands that create the data set, whose images are in ``<root>/images/<split>``."""
    root = images.parent.parent
    if root.name == 'coins_isic2017':  # of the demo
        raw = f'data/raw/{root.name}'
        return f'create it with "mmkcla data samples --out {raw}", then "mmkcla data isic2017 {raw} --out {root}"'
    return 'create it with mmkcla data'


def refuse_other_than_two(classes: Sequence[str], where: str) -> None:
    """Raise a :class:`UserError` unless there are two classes."""
    if isinstance(classes, str):
        raise UserError(f"{where}: metainfo.classes is the string {classes!r}; write "
                        f"classes=('background', {classes!r})")
    if len(classes) != 2:
        raise UserError(f'{where}: {len(classes)} classes ({listed(classes, 5)}), but it needs two, background and '
                        "foreground; for more use mmseg's BaseSegDataset with IoUMetric (docs/own-data.md)")


@DATASETS.register_module()
class ISIC2017Dataset(BinarySegDataset):
    """ISIC 2017 challenge, part 1: skin lesions."""

    METAINFO: ClassVar[dict] = dict(classes=('background', 'lesion'), palette=[[0, 0, 0], [255, 160, 0]])


@DATASETS.register_module()
class ISIC2018Dataset(BinarySegDataset):
    """ISIC 2018 challenge, task 1: skin lesions."""

    METAINFO: ClassVar[dict] = dict(classes=('background', 'lesion'), palette=[[0, 0, 0], [255, 160, 0]])


@DATASETS.register_module()
class KvasirSEGDataset(BinarySegDataset):
    """Kvasir-SEG: polyps in colonoscopy."""

    METAINFO: ClassVar[dict] = dict(classes=('background', 'polyp'), palette=[[0, 0, 0], [0, 200, 120]])
