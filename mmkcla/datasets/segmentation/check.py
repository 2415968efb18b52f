"""What is checked about a segmentation data set of two classes before a run."""
from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from ...registry import DATA_CHECKS
from ..check import Dataset
from .converters.folds import names_of_fold
from .verify import verify_once

WITHOUT_VAL = 'val_dataloader=None val_evaluator=None val_cfg=None default_hooks.checkpoint.save_best=None'


@DATA_CHECKS.register_module('BinarySegDataset')
def check_binary_seg(dataset: Dataset, model: dict) -> None:
    """Folders, and what :func:`mmkcla.datasets.segmentation.verify.verify_once` finds, of a ``BinarySegDataset``.

    Args:
        dataset: a :class:`mmkcla.datasets.check.Dataset`.
        model: the config's model.

    Raises:
        UserError: the first problem, and how many there are.
    """
    config, where = dataset.config, dataset.where
    root, split, fold = config.get('data_root'), config.get('split'), config.get('fold')
    if not root or split is None:
        return  # folders of its own: the dataset itself says what is missing
    if not Path(root).is_dir():
        raise UserError(f'no data folder {root} ({where}.data_root); tools/dataset_converters make it')
    if fold is not None and split in ('train', 'val'):
        names_of_fold(root, fold, split)
        split = 'train'
    folder = Path(root) / 'images' / split
    if not folder.is_dir():
        there = sorted(path.name for path in (Path(root) / 'images').glob('*') if path.is_dir())
        without = ''
        if split == 'val' and there:
            without = f'; without a val set (--split 7:3) train with --cfg-options {WITHOUT_VAL}'
        if split == 'train' and there:
            without = '; it is for testing only, a training needs another data set'
        raise UserError(f'no folder {folder} ({where}.split); {root} has: {", ".join(there) or "no images"}{without}')
    if Path(root) not in dataset.cache:
        dataset.cache[Path(root)] = verify_once(Path(root))
    problems = dataset.cache[Path(root)]
    if problems:
        rest = f' (and {len(problems) - 1} more)' if len(problems) > 1 else ''
        raise UserError(f'the data set {root} is damaged: {problems[0]}{rest}; see '
                        f'tools/misc/verify_dataset.py {root}, or train anyway with --no-checks')
    head = model.get('decode_head') or {}
    for part in head if isinstance(head, (list, tuple)) else [head]:
        if part.get('num_classes', 2) != 2:
            raise UserError(f'model.decode_head.num_classes is {part["num_classes"]}, but {where} has 2 classes; a '
                            'sigmoid head of one channel is num_classes=2, out_channels=1, threshold=0.5')
