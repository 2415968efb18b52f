"""What is checked about a config's data before a run starts, so that a mistake costs seconds and names its place.

Each kind of dataset has a checker; :data:`CHECKERS` maps the name of a dataset's class to it, and subclasses are
checked as their nearest ancestor there. A checker takes a :class:`Dataset` and raises :class:`UserError`.
"""
import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from .detection.coco_file import read_coco
from .segmentation.check import check_binary_seg

_HEADS_WITH_OTHER_CLASSES = ('rpn_head', 'semantic_head', 'mask_iou_head')


@dataclass
class Dataset:
    """One dataset of a config, out of its wrappers."""

    config: dict
    where: str  # its place in the config, as 'train_dataloader.dataset'
    ancestors: tuple[str, ...]  # names of its class and of those it derives from
    default_classes: tuple[str, ...] | None  # of the class's METAINFO
    annotated: bool  # whether the run needs annotations
    trained_on: bool
    cache: dict = field(default_factory=dict)  # what several checks of one run share

    def path(self, name: str | None) -> Path:
        """A path of the config, below its ``data_root``."""
        return Path(self.config.get('data_root') or '') / (name or '')


def check_config(config: Any, splits: Sequence[str] = ('train', 'val', 'test')) -> None:
    """Check the datasets of ``<split>_dataloader`` and that the model's heads count their classes.

    Call it with the host libraries imported (datasets are looked up in their registries).

    Raises:
        UserError: the first thing found wrong.
    """
    cache: dict = {}
    for split in splits:
        loader = config.get(f'{split}_dataloader')
        if not loader:
            continue
        evaluators = config.get(f'{split}_evaluator') or []
        evaluators = evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]
        annotated = split == 'train' or not any(evaluator.get('format_only') for evaluator in evaluators)
        for dataset_config, where in unwrapped(loader['dataset'], f'{split}_dataloader.dataset'):
            dataset = _look_up(dataset_config, where, config.get('default_scope'), annotated, split == 'train', cache)
            checker = next((CHECKERS[name] for name in dataset.ancestors if name in CHECKERS), None)
            if checker is not None:
                checker(dataset, config['model'])
        for number, evaluator in enumerate(evaluators):
            _check_evaluator(evaluator, f'{split}_evaluator' + (f'[{number}]' if number else ''))


def unwrapped(dataset: dict, where: str) -> Iterator[tuple[dict, str]]:
    """The plain datasets inside of wrappers (``dataset=``) and concatenations (``datasets=``), with their places."""
    if isinstance(dataset.get('dataset'), dict):
        yield from unwrapped(dataset['dataset'], f'{where}.dataset')
    elif dataset.get('datasets'):
        for number, part in enumerate(dataset['datasets']):
            yield from unwrapped(part, f'{where}.datasets[{number}]')
    else:
        yield dataset, where


def _look_up(config: dict, where: str, scope: str | None, annotated: bool, trained_on: bool, cache: dict) -> Dataset:
    from mmengine.registry import DATASETS
    found = kind = config.get('type')
    if isinstance(kind, str):
        with DATASETS.switch_scope_and_registry(scope) as registry:
            found = registry.get(kind)
    if found is None:
        raise KeyError(f'{kind} is not in the {scope}::dataset registry')
    ancestors = tuple(parent.__name__ for parent in getattr(found, '__mro__', (found,)))
    classes = getattr(found, 'METAINFO', {}).get('classes')
    return Dataset(config, where, ancestors, tuple(classes) if classes else None, annotated, trained_on, cache=cache)


def classes_of(dataset: Dataset) -> tuple[str, ...] | None:
    """The class names a dataset trains with: the config's ``metainfo``, else its class's own.

    Raises:
        UserError: ``classes`` is a string (a missing comma), or has a name twice.
    """
    metainfo = dataset.config.get('metainfo') or {}
    classes = metainfo.get('classes', metainfo.get('CLASSES'))
    if classes is None:
        return dataset.default_classes
    if isinstance(classes, str):
        if os.path.isfile(classes):  # mmengine reads the names from a file
            return tuple(Path(classes).read_text(encoding='utf-8').splitlines())
        raise UserError(f"{dataset.where}.metainfo.classes is the string {classes!r}, so each letter would be a class; "
                        f"write classes=({classes!r},) with the comma")
    repeated = sorted({name for name in classes if list(classes).count(name) > 1})
    if repeated:
        raise UserError(f'{dataset.where}.metainfo.classes names {", ".join(repeated)} more than once')
    return tuple(classes)


def check_coco(dataset: Dataset, model: dict) -> None:
    """Annotation file, image folder, classes and heads of a dataset in COCO's format."""
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
        beside = sorted(path.name for path in annotations.parent.glob('*.json')) if annotations.parent.is_dir() else []
        found = f'; {annotations.parent} has {_some(beside)}' if beside else ''
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
        _check_categories(classes, coco.categories, annotations, where)
        check_heads(model, len(classes), f'{where} has {_count(classes)}')
    if dataset.trained_on and classes and coco.annotated_categories is not None:
        _check_any_object(classes, coco.categories, coco.annotated_categories, annotations)


def _check_images(names: list[str], folder: Path, annotations: Path) -> None:
    present: dict[str, set[str]] = {}
    missing = []
    for name in names:
        below, file = os.path.split(name)
        if below not in present:  # one scan a folder: a stat a file takes minutes on a network disk
            try:
                present[below] = {entry.name for entry in os.scandir(folder / below)}
            except OSError:
                present[below] = set()
        if file not in present[below]:
            missing.append(name)
    if missing:
        raise UserError(f'{len(missing)} of {len(names)} images of {annotations} are not in {folder}: {_some(missing)}')


def _check_categories(classes: tuple[str, ...], categories: list[str], annotations: Path, where: str) -> None:
    absent = [name for name in classes if name not in categories]
    both = f'{where}.metainfo.classes: {_some(classes, 20)}; categories of {annotations}: {_some(categories, 20)}'
    if len(absent) == len(classes):
        origin = '' if len(classes) < 80 else " (COCO's 80 are the default: set metainfo=dict(classes=(...,)))"
        raise UserError(f'none of the classes is among the annotation file\'s categories{origin}; {both}')
    if absent:
        near = difflib.get_close_matches(absent[0], categories, n=1)
        hint = f' (did you mean {near[0]!r}?)' if near else ''
        raise UserError(f'classes without a category in the annotation file: {_some(absent)}{hint}; {both}')
    order = [name for name in categories if name in classes]
    if order != list(classes):
        # mmdet numbers classes as the file orders its categories, and names them as the config orders them
        raise UserError(f'the classes are in another order than the categories of the annotation file, so their names '
                        f'would be swapped; write classes=({", ".join(map(repr, order))},); {both}')


def _check_any_object(classes: tuple[str, ...], categories: list[str], annotated: set[str], annotations: Path) -> None:
    if not annotated & set(classes):
        raise UserError(f'{annotations} has no object of the classes {_some(classes)} to train on; '
                        f'it has objects of: {_some(sorted(annotated)) or "none"}')


def check_heads(model: Any, classes: int, reason: str, where: str = 'model') -> None:
    """See that each ``num_classes`` in a detector's heads is ``classes``.

    Args:
        model: the config of the model, or a part of it.
        classes: how many classes there are.
        reason: what says so, for the message.
        where: the place of ``model`` in the config.

    Raises:
        UserError: naming the first head that counts otherwise.
    """
    if isinstance(model, (list, tuple)):
        for number, part in enumerate(model):
            check_heads(part, classes, reason, f'{where}.{number}')
    elif isinstance(model, dict):
        number = model.get('num_classes')
        if isinstance(number, int) and 'head' in where.split('.', 1)[-1] and number != classes:
            raise UserError(f'{where}.num_classes is {number}, but {reason}; '
                            f'give --cfg-options {where}.num_classes={classes} or change the config')
        for key, part in model.items():
            if key not in _HEADS_WITH_OTHER_CLASSES:
                check_heads(part, classes, reason, f'{where}.{key}')


def _check_evaluator(evaluator: dict, where: str) -> None:
    path = evaluator.get('ann_file')
    if (path and 'Coco' in str(evaluator.get('type')) and '://' not in path and not os.path.isfile(path)
            and (evaluator.get('backend_args') or {}).get('backend', 'local') == 'local'):
        raise UserError(f'no annotation file {path} ({where}.ann_file)')


def _some(names: Sequence[str], most: int = 3) -> str:
    return ', '.join(names[:most]) + (f', … ({len(names)})' if len(names) > most else '')


def _count(classes: Sequence[str]) -> str:
    return f'{len(classes)} class{"" if len(classes) == 1 else "es"} ({_some(classes)})'


def _unchecked(dataset: Dataset, model: dict) -> None:
    """For subclasses of a checked dataset whose files are of another format."""


CHECKERS: dict[str, Callable[[Dataset, dict], None]] = {
    'BinarySegDataset': check_binary_seg,
    'CocoDataset': check_coco,
    'LVISV05Dataset': _unchecked,
    'LVISV1Dataset': _unchecked,
    'CocoPanopticDataset': _unchecked,
    'V3DetDataset': _unchecked,
}
