"""scikit-learn's digits: 1,797 scans of handwritten digits, 8×8 pixels, shipped with the package."""
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from mmengine.dataset import BaseDataset

from ...errors import UserError
from ...registry import DATASETS

SPLITS = ('train', 'test')
TEST_SHARE = 5  # every fifth scan of each digit, in a fixed random order, is for testing


@DATASETS.register_module()
class DigitsDataset(BaseDataset):
    """Classification of handwritten digits, for demos and tests; no download is needed.

    A fifth of the scans of each digit, drawn with a fixed seed, is the test set, the rest the train set. The data do
    not name the writers, so scans of one writer may be in both.

    Args:
        split: ``'train'`` or ``'test'``.
        kwargs: passed to mmengine's ``BaseDataset``.

    Raises:
        UserError: for another split, or if scikit-learn is not installed.
    """

    METAINFO: ClassVar[dict] = dict(classes=tuple('0123456789'))

    def __init__(self, split: str = 'train', **kwargs: Any) -> None:
        if split not in SPLITS:
            raise UserError(f'DigitsDataset: split={split!r} is unknown; choose one of: {", ".join(SPLITS)}')
        self.split = split
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        """Scans as ``img`` (8×8×3, uint8, 0 to 255) with ``gt_label``."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise UserError("DigitsDataset needs scikit-learn: pip install 'mmkcla[demo]'") from error
        digits = load_digits()
        test = test_indices(digits.target)
        chosen = test if self.split == 'test' else np.setdiff1d(np.arange(len(digits.target)), test)
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        return [dict(img=np.repeat(images[i][..., None], 3, axis=2), gt_label=int(digits.target[i]),
                     img_path=f'digit{i}', img_shape=(8, 8), ori_shape=(8, 8)) for i in chosen]


def test_indices(labels: np.ndarray) -> np.ndarray:
    """Indices of the test set, sorted."""
    generator = np.random.default_rng(0)
    return np.sort(np.concatenate([generator.permutation(np.flatnonzero(labels == digit))[::TEST_SHARE]
                                   for digit in np.unique(labels)]))
