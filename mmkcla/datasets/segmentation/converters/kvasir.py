"""Kvasir-SEG: polyps in colonoscopy, segmented; https://datasets.simula.no/kvasir-seg/."""
from __future__ import annotations

import os
from typing import Any

from mmkcla.datasets.segmentation.converters.layout import Layout, Part
from mmkcla.datasets.segmentation.converters.medical import convert
from mmkcla.datasets.segmentation.converters.writing import Outcome

KVASIR_SEG = Layout(
    'kvasir_seg', 'Kvasir-SEG', (Part('all', 'images', 'masks'),), ('kvasir-seg',), split='8:1:1', drawn=('all',),
    about_splits='There is no published test set; 8:1:1 drawn by seed 0 is the default here. The authors\' own lists '
                 '(train.txt and val.txt of MediaEval Medico 2020, 880 and 120 names, no test) are read by '
                 '--split-file FOLDER. 7:3 (700 and 300 of 1,000) is a legacy protocol: its second part is written as '
                 'test and there is no val, since choosing a model on it would choose it on the test set. 900:100 has '
                 "the sizes of the polyp papers' split (PraNet), but is drawn by the seed: their list of names is not "
                 'shipped here; give it as --split-file for theirs. Several images can show the same polyp; a drawn '
                 'split does not keep them together.')


def convert_kvasir_seg(source: str | os.PathLike, out: str | os.PathLike, **options: Any) -> Outcome:
    """Prepare Kvasir-SEG; see :func:`mmkcla.datasets.segmentation.converters.medical.convert`."""
    return convert(KVASIR_SEG, source, out, **options)
