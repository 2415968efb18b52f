"""ISIC 2017 (part 1) and ISIC 2018 (task 1): skin lesions, segmented; https://challenge.isic-archive.com/data/."""
from __future__ import annotations

import os
import re
from typing import Any

from mmkcla.datasets.segmentation.converters.layout import Layout, Part
from mmkcla.datasets.segmentation.converters.medical import convert
from mmkcla.datasets.segmentation.converters.writing import Outcome


def _mask_name(stem: str) -> str:
    """``ISIC_0000000_segmentation`` to ``ISIC_0000000``."""
    return re.sub('_segmentation$', '', stem, flags=re.IGNORECASE)


def _layout(name: str, title: str, parts: tuple[Part, ...], counts: str, legacy: str) -> Layout:
    return Layout(
        name, title, parts, tuple(folder for part in parts for folder in (part.images, part.masks)),
        split='official', drawn=('train', 'val'), mask_name=_mask_name,
        skipped=re.compile('_superpixels$', re.IGNORECASE),
        about_splits=f'official: the published training, validation and test sets ({counts}). A ratio is drawn by the '
                     f'seed from the training and validation images; 7:3 ({legacy}) is the legacy protocol of many '
                     'papers: its second part is written as test and there is no val, since choosing a model on it '
                     'would choose it on the test set. The published test set is then not used.')


ISIC2017 = _layout(
    'isic2017', 'ISIC 2017',
    (Part('train', 'ISIC-2017_Training_Data', 'ISIC-2017_Training_Part1_GroundTruth'),
     Part('val', 'ISIC-2017_Validation_Data', 'ISIC-2017_Validation_Part1_GroundTruth'),
     Part('test', 'ISIC-2017_Test_v2_Data', 'ISIC-2017_Test_v2_Part1_GroundTruth')),
    '2,000, 150 and 600 images', '1,500 and 650 of 2,150')
ISIC2018 = _layout(
    'isic2018', 'ISIC 2018',
    (Part('train', 'ISIC2018_Task1-2_Training_Input', 'ISIC2018_Task1_Training_GroundTruth'),
     Part('val', 'ISIC2018_Task1-2_Validation_Input', 'ISIC2018_Task1_Validation_GroundTruth'),
     Part('test', 'ISIC2018_Task1-2_Test_Input', 'ISIC2018_Task1_Test_GroundTruth')),
    '2,594, 100 and 1,000 images', '1,886 and 808 of 2,694')


def convert_isic2017(source: str | os.PathLike, out: str | os.PathLike, **options: Any) -> Outcome:
    """Prepare ISIC 2017; see :func:`mmkcla.datasets.segmentation.converters.medical.convert`."""
    return convert(ISIC2017, source, out, **options)


def convert_isic2018(source: str | os.PathLike, out: str | os.PathLike, **options: Any) -> Outcome:
    """Prepare ISIC 2018; see :func:`mmkcla.datasets.segmentation.converters.medical.convert`."""
    return convert(ISIC2018, source, out, **options)
