"""Check a data set in COCO format before a run."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...registry import DATA_CHECKS
from ...utils.text import did_you_mean, listed, note
from ..check import Dataset, check_heads, class_count, classes_of, datasets_of
from ..pipelines import steps_of
from ..report import DROPPED, NOTE, REFUSED, REPAIRED, Fault
from .coco.cache import cached_table
from .coco.faults import NO_OBJECTS, Use, find_faults, images_of, used
from .coco.report import absent_images, image_faults
from .coco.table import Table
from .compare import order_problem


@DATA_CHECKS.register_module('CocoDataset')
def check_coco(dataset: Dataset, model: dict) -> None:
    """Check the annotation file, images, classes and heads of a dataset in COCO format."""
    if is_remote(dataset):
        return
    annotations, folder = check_paths(dataset)
    where = dataset.where
    classes = classes_of(dataset)
    if annotations not in dataset.cache:
        dataset.cache[annotations] = cached_table(annotations)
    table: Table = dataset.cache[annotations]
    if dataset.annotated and not table.annotated:
        raise UserError(f"{annotations} has no 'annotations', only images and categories ({where}.ann_file)")
    if not table.names:
        raise UserError(f'{annotations} lists no images ({where}.ann_file)')
    _refuse(annotations, table.faults)
    use = use_of(dataset, model, classes)
    part = None if use.indices is None else np.flatnonzero(images_of(table, use))
    _refuse(annotations, absent_images(table.names if part is None else [table.names[i] for i in part], folder))
    faults = find_faults(table, use)
    _refuse(annotations, [fault for fault in faults if fault.kind.startswith('categories with the name')])
    if classes:
        _check_categories(dataset, classes, table.classes, annotations)
        check_heads(model, len(classes), f'{where} has {class_count(classes)}')
    if dataset.annotated:
        _refuse(annotations, [fault for fault in faults if fault.kind != NO_OBJECTS])
    if dataset.trained_on and classes:
        _check_any_object(classes, table, use, annotations)
    pipeline = dataset.config.get('pipeline') or ()
    headers = (annotations, folder, str(pipeline), None if part is None else part.tobytes())
    if headers not in dataset.cache:
        dataset.cache[headers] = image_faults(table, folder, pipeline, part=part)
    faults += dataset.cache[headers]
    _refuse(annotations, faults if dataset.annotated else dataset.cache[headers])
    for fault in faults:
        if fault.severity in (DROPPED, REPAIRED, NOTE):
            note(f'{annotations}: {fault}')


def is_remote(dataset: Dataset) -> bool:
    """Whether the data are not on a file system we can look at."""
    config = dataset.config
    paths = (config.get('data_root'), config.get('ann_file'), *(config.get('data_prefix') or {}).values())
    return (any('://' in str(path) for path in paths)
            or (config.get('backend_args') or {}).get('backend', 'local') != 'local')


def check_paths(dataset: Dataset) -> tuple[Path, Path]:
    """The annotation file and the image folder.

    Raises:
        UserError: one of them is missing.
    """
    config, where = dataset.config, dataset.where
    prefixes, root = config.get('data_prefix') or {}, config.get('data_root')
    annotations, folder = dataset.path(config.get('ann_file')), dataset.path(prefixes.get('img', ''))
    layout = f'expected: {annotations} and the images in {folder}'
    if root and not Path(root).is_dir():
        raise UserError(f'no data folder {root} ({where}.data_root); {layout}')
    if not config.get('ann_file'):
        raise UserError(f'{where} has no ann_file')
    if not annotations.is_file():
        others = sorted(path.name for path in annotations.parent.glob('*.json')) if annotations.parent.is_dir() else []
        found = f'; {annotations.parent} has {listed(others)}' if others else ''
        raise UserError(f'no annotation file {annotations} ({where}.ann_file){found}; {layout}')
    if not folder.is_dir():
        raise UserError(f'no image folder {folder} ({where}.data_prefix); {layout}')
    return annotations, folder


def use_of(dataset: Dataset, model: Any, classes: tuple[str, ...] | None) -> Use:
    """What the run uses the data set for."""
    config = dataset.config
    loading = [step for step in steps_of(config.get('pipeline')) if 'LoadAnnotations' in str(step.get('type'))]
    evaluators = [one for one, _ in dataset.evaluators if 'CocoMetric' in str(one.get('type'))]
    masks = any(step.get('with_mask') for step in loading) or any(
        'segm' in str(one.get('metric', '')) for one in evaluators)
    filtered = dataset.trained_on and not config.get('test_mode')
    renumbered = None
    if evaluators and not dataset.trained_on and dataset.annotated:
        renumbered = all('mmkcla' in str(one.get('type')) for one in evaluators)
    return Use(classes, dataset.trained_on, masks,
               any(step.get('with_mask') and step.get('poly2mask') is False for step in loading), renumbered,
               dict(config.get('filter_cfg') or {}) if filtered else {}, config.get('indices'))


def _refuse(annotations: Path, faults: list[Fault]) -> None:
    refused = [fault for fault in faults if fault.severity == REFUSED]
    if refused:
        more = f' (and {len(refused) - 1} more faults; see mmkcla data verify)' if len(refused) > 1 else ''
        raise UserError(f'{annotations}: {refused[0]}{more}')


def _check_categories(dataset: Dataset, classes: tuple[str, ...], categories: list[str], annotations: Path) -> None:
    where = dataset.where
    absent = [name for name in classes if name not in categories]
    both = f'{where}.metainfo.classes: {listed(classes, 20)}; categories of {annotations}: {listed(categories, 20)}'
    if len(absent) == len(classes):
        origin = '' if len(classes) < 80 else " (COCO's 80 are the default: set metainfo=dict(classes=(...,)))"
        raise UserError(f'none of the classes is a category of the annotation file{origin}; {both}')
    if absent:
        hint = did_you_mean(absent[0], categories)
        raise UserError(f'classes missing from the categories of the annotation file: {listed(absent)}{hint}; {both}')
    order = list(dict.fromkeys(name for name in categories if name in classes))
    if order != list(classes):
        # mmdet numbers classes as the file orders its categories, and names them as the config orders them
        raise UserError(f'{order_problem(dataset, classes, order, datasets_of(dataset.run, "train", dataset.cache))}; '
                        f'{both}')


def _check_any_object(classes: tuple[str, ...], table: Table, use: Use, annotations: Path) -> None:
    if not used(table, use).any():
        annotated = sorted({table.classes[i] for i in set(table.category.tolist()) - {-1}})
        raise UserError(f'{annotations} has no objects of the classes {listed(classes)} to train on; '
                        f'it has objects of: {listed(annotated) or "none"}')


@DATA_CHECKS.register_module(['LVISV05Dataset', 'LVISV1Dataset', 'CocoPanopticDataset', 'V3DetDataset'])
def skip_check(dataset: Dataset, model: dict) -> None:
    """Skip the check for subclasses of ``CocoDataset`` with another file format."""


@DATA_CHECKS.register_module('BaseDetDataset')
def check_classes(dataset: Dataset, model: dict) -> None:
    """Check the heads against the classes of a data set of mmdet in another format (Pascal VOC, Open Images, …)."""
    if classes := classes_of(dataset):
        check_heads(model, len(classes), f'{dataset.where} has {class_count(classes)}')
