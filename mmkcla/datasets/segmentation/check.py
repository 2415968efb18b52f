"""Check a prepared segmentation data set before a run."""
from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from ...registry import DATA_CHECKS
from ...utils.images import IMAGE_SUFFIXES
from ..check import Dataset, check_heads, class_count, classes_of
from .converters.folds import names_of_fold
from .converters.manifest import read_manifest
from .verify import verify_once

WITHOUT_VAL = 'val_dataloader=None val_evaluator=None val_cfg=None default_hooks.checkpoint.save_best=None'


@DATA_CHECKS.register_module('BinarySegDataset')
def check_binary_seg(dataset: Dataset, model: dict) -> None:
    """Check the folders and files of a ``BinarySegDataset``, with
    :func:`mmkcla.datasets.segmentation.verify.verify_once`.

    Args:
        dataset: a :class:`mmkcla.datasets.check.Dataset`.
        model: the config's model.

    Raises:
        UserError: for the first problem, with the number of problems.
    """
    config, where = dataset.config, dataset.where
    root, split, fold = config.get('data_root'), config.get('split'), config.get('fold')
    if not root or split is None:
        return  # custom folders: the dataset reports what is missing
    if not Path(root).is_dir():
        raise UserError(f'no data folder {root} ({where}.data_root); create it with mmkcla data')
    if fold is not None and split in ('train', 'val'):
        names_of_fold(root, fold, split)
    _same_fold(dataset, Path(root), split, fold)
    split = 'train' if fold is not None else split
    folder = Path(root) / 'images' / split
    if not folder.is_dir():
        there = sorted(path.name for path in (Path(root) / 'images').glob('*') if path.is_dir())
        without = ''
        if split == 'val' and there:
            without = f'; without a val set (--split 7:3) train with --cfg-options {WITHOUT_VAL}'
        if split == 'train' and there:
            without = '; this data set is for testing only; train on another one'
        raise UserError(f'no folder {folder} ({where}.split); {root} has: {", ".join(there) or "no images"}{without}')
    _verify(dataset, Path(root))
    check_heads(model, 2, f'{where} has 2 classes; for a sigmoid head of one channel use num_classes=2, '
                           'out_channels=1, threshold=0.5')


@DATA_CHECKS.register_module('BaseSegDataset')
def check_labels(dataset: Dataset, model: dict) -> None:
    """Check contents, classes and suffix of a data set that a converter wrote with labels; skip other data sets.

    Args:
        dataset: a :class:`mmkcla.datasets.check.Dataset`.
        model: the config's model.

    Raises:
        UserError: for the first problem.
    """
    config, where = dataset.config, dataset.where
    root = Path(config.get('data_root') or '')
    try:
        manifest = read_manifest(root) if config.get('data_root') else None
    except UserError:  # someone else's file of that name
        manifest = None
    if manifest is None or 'classes' not in manifest:
        return
    classes = classes_of(dataset)
    if classes is None or len(classes) != len(manifest['classes']):
        written = ', '.join(map(repr, manifest['classes']))
        raise UserError(f'{where}.metainfo.classes has {len(classes or ())} classes, but the masks of {root} have '
                        f'{len(manifest["classes"])}: write metainfo=dict(classes=({written}))')
    folder = root / (config.get('data_prefix') or {}).get('img_path', '')
    suffix = config.get('img_suffix', '.jpg')
    there = sorted({path.suffix for path in folder.glob('*') if path.suffix.lower() in IMAGE_SUFFIXES})
    if there and suffix not in there:
        raise UserError(f'{where}.img_suffix is {suffix!r}, but the images in {folder} have: {", ".join(there)}')
    _verify(dataset, root)
    check_heads(model, len(classes), f'{where} has {class_count(classes)}')


def _same_fold(dataset: Dataset, root: Path, split: str, fold: int | None) -> None:
    """Training and validation must use the same fold, otherwise they share images."""
    folds = dataset.cache.setdefault(('folds', root), {})
    folds[split] = fold
    if folds.get('train') != folds.get('val') and {'train', 'val'} <= folds.keys():
        raise UserError(f'fold is {folds["train"]} for train and {folds["val"]} for val ({dataset.where}.fold): '
                        'set both to the same fold')


def _verify(dataset: Dataset, root: Path) -> None:
    if root not in dataset.cache:
        dataset.cache[root] = verify_once(root)
    if problems := dataset.cache[root]:
        rest = f' (and {len(problems) - 1} more)' if len(problems) > 1 else ''
        raise UserError(f'the data set {root} is damaged: {problems[0]}{rest}; run mmkcla data verify {root}, or skip '
                        'the checks with --no-checks')
