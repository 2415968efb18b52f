"""Check a data set in COCO format before a run."""
import os
from pathlib import Path

from ...errors import UserError
from ...registry import DATA_CHECKS
from ...utils.text import did_you_mean, listed
from ..check import Dataset, check_heads, class_count, classes_of, datasets_of
from .coco_file import read_coco
from .compare import order_problem


@DATA_CHECKS.register_module('CocoDataset')
def check_coco(dataset: Dataset, model: dict) -> None:
    """Check the annotation file, image folder, classes and heads of a dataset in COCO format."""
    config, where = dataset.config, dataset.where
    prefixes = config.get('data_prefix') or {}
    prefix, root = prefixes.get('img', prefixes.get('img_path', '')), config.get('data_root')
    if (any('://' in str(path) for path in (root, config.get('ann_file'), prefix))
            or (config.get('backend_args') or {}).get('backend', 'local') != 'local'):
        return  # not a file system we can look at
    annotations, folder = dataset.path(config.get('ann_file')), dataset.path(prefix)
    classes = classes_of(dataset)
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

    if annotations not in dataset.cache:
        dataset.cache[annotations] = read_coco(annotations)
    coco = dataset.cache[annotations]
    if dataset.annotated and not coco.has_annotations:
        raise UserError(f"{annotations} has no 'annotations', only images and categories ({where}.ann_file)")
    if not coco.images:
        raise UserError(f'{annotations} lists no images ({where}.ann_file)')
    _check_images(coco.images, folder, annotations)
    if classes:
        _check_categories(dataset, classes, coco.categories, annotations)
        check_heads(model, len(classes), f'{where} has {class_count(classes)}')
    if dataset.trained_on and classes and coco.annotated_categories is not None:
        _check_any_object(classes, coco.categories, coco.annotated_categories, annotations)


def _check_images(names: list[str], folder: Path, annotations: Path) -> None:
    present: dict[str, set[str]] = {}
    missing = []
    for name in names:
        below, file = os.path.split(name)
        if below not in present:  # one scan per folder; one stat per file takes minutes on a network disk
            try:
                present[below] = {entry.name for entry in os.scandir(folder / below)}
            except OSError:
                present[below] = set()
        if file not in present[below]:
            missing.append(name)
    if missing:
        raise UserError(f'{len(missing)} of {len(names)} images of {annotations} are not in {folder}: '
                        f'{listed(missing)}')


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
    order = [name for name in categories if name in classes]
    if order != list(classes):
        # mmdet numbers classes as the file orders its categories, and names them as the config orders them
        raise UserError(f'{order_problem(dataset, classes, order, datasets_of(dataset.run, "train", dataset.cache))}; '
                        f'{both}')


def _check_any_object(classes: tuple[str, ...], categories: list[str], annotated: set[str], annotations: Path) -> None:
    if not annotated & set(classes):
        raise UserError(f'{annotations} has no objects of the classes {listed(classes)} to train on; '
                        f'it has objects of: {listed(sorted(annotated)) or "none"}')


@DATA_CHECKS.register_module(['LVISV05Dataset', 'LVISV1Dataset', 'CocoPanopticDataset', 'V3DetDataset'])
def skip_check(dataset: Dataset, model: dict) -> None:
    """Skip the check for subclasses of ``CocoDataset`` with another file format."""


@DATA_CHECKS.register_module('BaseDetDataset')
def check_classes(dataset: Dataset, model: dict) -> None:
    """Check the heads against the classes of a data set of mmdet in another format (Pascal VOC, Open Images, …)."""
    if classes := classes_of(dataset):
        check_heads(model, len(classes), f'{dataset.where} has {class_count(classes)}')
