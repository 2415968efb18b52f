"""The medical data sets of two classes, as the converters write them."""
from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from mmseg.datasets import BaseSegDataset

from ...errors import UserError
from ...registry import DATASETS
from ...utils.images import IMAGE_SUFFIXES


class BinarySegDataset(BaseSegDataset):
    """Images and PNG masks of the same name, in two folders.

    Args:
        data_root: the folder that a converter wrote.
        split: ``'train'``, ``'val'`` or ``'test'``: stands for
            ``data_prefix=dict(img_path='images/<split>', seg_map_path='masks/<split>')``.
        kwargs: of mmseg's ``BaseSegDataset``.

    Raises:
        UserError: if there are no images, or an image has no mask.
    """

    METAINFO: ClassVar[dict] = {}

    def __init__(self, data_root: str | None = None, split: str | None = None, **kwargs: Any) -> None:
        if split is not None:
            kwargs['data_prefix'] = dict(img_path=f'images/{split}', seg_map_path=f'masks/{split}')
        super().__init__(data_root=data_root, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Pair images and masks by their names."""
        images, masks = Path(self.data_prefix['img_path']), self.data_prefix.get('seg_map_path')
        found = sorted(path for path in images.glob('*') if path.suffix.lower() in IMAGE_SUFFIXES)
        if not found:
            raise UserError(f'{type(self).__name__}: no images ({" ".join(IMAGE_SUFFIXES)}) in {images}'
                            + ('' if images.is_dir() else ', which does not exist')
                            + '; tools/dataset_converters make this folder')
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
