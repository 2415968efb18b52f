"""Check a prepared segmentation data set before a run."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...registry import DATA_CHECKS
from ...utils.images import IMAGE_SUFFIXES
from ...utils.text import one_line
from ..check import Dataset, check_heads, class_count, classes_of, datasets_of
from ..findings import Finding, act_on
from ..image_files import ImageFile, depth_findings, file_findings, leak, read_spread, shape_findings
from ..pipelines import applies_orientation, image_loader, mask_loader
from .converters.folds import names_of_fold
from .converters.manifest import read_manifest
from .mask_colours import palette_findings, read_palettes, usual_colours
from .mask_folder import Pair, inspect_pairs, label_findings, pairing_findings, size_findings
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
        check_pairs(dataset, model)
        return
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
    check_heads(model, 2, f'{where} has 2 classes; for a sigmoid head of one channel use num_classes=2, '
                           'out_channels=1, threshold=0.5')
    if _threshold(dataset) is None:
        _verify(dataset, Path(root))
    else:  # the masks may have any values: what counts is what the pipeline makes of them
        check_pairs(dataset, model)


def _threshold(dataset: Dataset) -> int | None:
    return (mask_loader(dataset.config.get('pipeline') or ()) or {}).get('threshold')


@DATA_CHECKS.register_module('BaseSegDataset')
def check_labels(dataset: Dataset, model: dict) -> None:
    """Check contents, classes and suffix of a data set that a converter wrote with labels; check other data sets with
    :func:`check_pairs`.

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
        check_pairs(dataset, model)
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


@DATA_CHECKS.register_module(['NYUDataset', 'HSIDrive20Dataset', 'DecathlonDataset', 'DSDLSegDataset', 'OneDLDataset',
                              'BaseCDDataset'])
def skip_check(dataset: Dataset, model: dict) -> None:
    """Skip data sets without class masks in image files (depth, spectra, volumes), with lists of their own, or with
    pairs of images."""


def check_pairs(dataset: Dataset, model: dict) -> None:
    """Check images and masks of any mmseg data set: pairs, sizes, labels, ignored pixels, damage, and the heads.

    Raises:
        UserError: for the first fault; remarks are printed as notes.
    """
    found = mask_folder_of(dataset)
    if found is None:
        return
    act_on(found.pairing, dataset.where)
    check_model(dataset, model, found.classes)
    act_on(look_at_pairs(dataset, model, found)[2], dataset.where)


def check_model(dataset: Dataset, model: dict, classes: tuple[str, ...] | None) -> None:
    """Check the number of classes of the decode and auxiliary heads.

    Raises:
        UserError: for the first that does not fit the classes.
    """
    for name in ('decode_head', 'auxiliary_head'):
        head = model.get(name) if classes else None
        for part in head if isinstance(head, (list, tuple)) else [head]:
            if isinstance(part, dict) and str(part.get('type')) != 'STDCHead':  # its classes are edge and no edge
                check_heads(part, len(classes or ()), f'{dataset.where} has {class_count(classes or ())}',
                            f'model.{name}')


@dataclass
class MaskFolder:
    """What an mmseg data set lists.

    Attributes:
        data: one entry for each image, as mmseg's ``load_data_list`` returns them.
        classes: class names; None: unknown.
        reduce_zero: ``reduce_zero_label``.
        pairing: findings about missing files.
        folder: of the images.
    """

    data: list[dict]
    classes: tuple[str, ...] | None
    reduce_zero: bool
    pairing: list[Finding]
    folder: Path | None = None


def mask_folder_of(dataset: Dataset) -> MaskFolder | None:
    """List the images and masks of a dataset config; None where they cannot be looked at (a remote file system, or a
    pipeline that loads other files).

    Raises:
        UserError: the host cannot build the data set.
    """
    config = dataset.config
    prefix = config.get('data_prefix') or {}
    places = [config.get('data_root'), config.get('ann_file'), *(prefix.values() if isinstance(prefix, dict) else ())]
    if (any('://' in str(place) for place in places) or image_loader(config.get('pipeline') or ()) is None
            or (config.get('backend_args') or {}).get('backend', 'local') != 'local'):
        return None
    options: dict[str, Any] = {key: value for key, value in config.items()
                               if key not in ('type', 'pipeline', 'lazy_init', '_scope_')}
    folder = prefix.get('img_path') if isinstance(prefix, dict) else None
    if folder is not None and not dataset.path(folder).is_dir():
        raise UserError(f'no image folder {dataset.path(folder)} ({dataset.where}.data_prefix)')
    try:
        built = dataset.kind(**options, lazy_init=True)
        data = built.load_data_list()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # an assertion, or a missing file
        raise UserError(f'{dataset.where} cannot be built: {one_line(error, 200)}') from error
    folders = [Path(path) if path else None for path in map(built.data_prefix.get, ('img_path', 'seg_map_path'))]
    labelled = mask_loader(config.get('pipeline') or ()) is not None
    listed = built.ann_file if built.ann_file and Path(built.ann_file).is_file() else ''
    classes = built.metainfo.get('classes')
    pairing = pairing_findings(data, folders[0], folders[1] if labelled else None, built.img_suffix,
                               built.seg_map_suffix, listed) if labelled or not data else []
    return MaskFolder(data, None if classes is None else tuple(classes), bool(built.reduce_zero_label), pairing,
                      folders[0])


def look_at_pairs(dataset: Dataset, model: dict, found: MaskFolder,
                  whole: bool = False) -> tuple[list[ImageFile], list[Pair], list[Finding]]:
    """Read images and masks; return them, and what is wrong with them.

    Args:
        dataset, model: parts of the config.
        found: from :func:`mask_folder_of`.
        whole: read all of them; else an evenly spread part of large data sets.
    """
    from mmseg.registry import TRANSFORMS
    pipeline = dataset.config.get('pipeline') or ()
    images = read_spread([Path(part['img_path']) for part in found.data], whole)
    findings = file_findings(images, len(found.data)) + depth_findings(images, image_loader(pipeline))
    findings += shape_findings(images, pipeline) + _leak(dataset, images)
    step = mask_loader(pipeline)
    if step is None or not all(part.get('seg_map_path') for part in found.data):
        return images, [], findings
    pairs = inspect_pairs(found.data, TRANSFORMS.build(dict(step)), whole)
    if len(pairs) < len(found.data):
        findings.append(Finding(f'only {len(pairs)} of {len(found.data)} masks were decoded, evenly spread; mmkcla '
                                'data verify decodes all'))
    head = model.get('decode_head') or {}
    head = head[-1] if isinstance(head, (list, tuple)) and head else head
    number = len(found.classes) if found.classes else head.get('num_classes')
    upright = applies_orientation(image_loader(pipeline) or {})
    findings += size_findings(pairs, images, upright)
    thresholded = 'LoadBinaryMask' in str(step.get('type'))
    findings += label_findings(pairs, found.classes, number, _ignored(dataset, head), found.reduce_zero,
                               dataset.trained_on, thresholded)
    if not thresholded:
        findings += _palettes(dataset, pairs, found.classes, _ignored(dataset, head))
    return images, pairs, findings


def _palettes(dataset: Dataset, pairs: list[Pair], classes: tuple[str, ...] | None,
              ignored: set[int]) -> list[Finding]:
    """Compare the colours of palette masks with those of the training set, or within the training set."""
    masks = [(pair.mask, pair.palette) for pair in pairs if pair.palette]
    if not masks:
        return []
    usual, where = usual_colours(palette for _, palette in masks), 'most of them'
    for other in datasets_of(dataset.run, 'train', dataset.cache) if dataset.split != 'train' else ():
        try:
            found = mask_folder_of(other) if 'BaseSegDataset' in other.ancestors else None
        except UserError:  # a test does not need the training set
            continue
        paths = [part['seg_map_path'] for part in found.data if part.get('seg_map_path')] if found else []
        if colours := usual_colours(read_palettes(paths)):
            usual, where = {**usual, **colours}, other.where
            break
    return palette_findings(masks, usual, where, classes, ignored)


def _leak(dataset: Dataset, images: list[ImageFile]) -> list[Finding]:
    if dataset.split == 'train' or dataset.config.get('indices') is not None:
        return []
    sizes = {image.path.stat().st_size for image in images if image.sha256}  # only these can be equal
    for other in datasets_of(dataset.run, 'train', dataset.cache):
        try:
            found = mask_folder_of(other) if 'BaseSegDataset' in other.ancestors else None
        except UserError:  # a test does not need the training set
            continue
        if found is not None and other.config.get('indices') is None:
            paths = [path for path in map(Path, (part['img_path'] for part in found.data))
                     if path.is_file() and path.stat().st_size in sizes]
            if same := leak(read_spread(paths), images, other.where):
                return same
    return []


def _ignored(dataset: Dataset, head: dict) -> set[int]:
    """The labels that the loss of a training, or the metrics of a test, leave out."""
    if dataset.trained_on:
        return {head.get('ignore_index', 255)} - {None}
    return {part.get('ignore_index', 255) for part, _ in dataset.evaluators or [({}, '')]} - {None}


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
