"""Check the data of a config before a run starts, so that mistakes are reported within seconds.

Each kind of data set has a check, registered in :data:`mmkcla.registry.DATA_CHECKS` under the name of the data set's
class; a subclass is checked as its nearest ancestor there. A check takes a :class:`Dataset` and the model's config, and
raises :class:`UserError`.
"""
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..registry import DATA_CHECKS, DATA_COMPARISONS
from ..utils.text import listed, plural
from .prefixes import check_prefix_folders, check_prefix_keys

_HEADS_WITH_OTHER_CLASSES = ('rpn_head', 'semantic_head', 'mask_iou_head')


@dataclass
class Dataset:
    """One dataset of a config, without its wrappers."""

    config: dict
    where: str  # its key in the config, e.g. 'train_dataloader.dataset'
    ancestors: tuple[str, ...]  # names of its class and base classes
    default_classes: tuple[str, ...] | None  # of the class's METAINFO
    annotated: bool  # whether the run needs annotations
    trained_on: bool
    cache: dict = field(default_factory=dict)  # shared by the checks of one run
    kind: Any = None  # its class
    run: Any = field(default_factory=dict)  # the whole config

    @property
    def split(self) -> str:
        """``'train'``, ``'val'`` or ``'test'``."""
        return self.where.partition('_dataloader')[0]

    @property
    def evaluators(self) -> list[tuple[dict, str]]:
        """The evaluators of this split, with their config keys."""
        return evaluators_of(self.run, self.split)

    def path(self, name: str | None) -> Path:
        """A path of the config, joined to its ``data_root``."""
        return Path(self.config.get('data_root') or '') / (name or '')


def check_config(config: Any, splits: Sequence[str] = ('train', 'val', 'test')) -> None:
    """Check the datasets of ``<split>_dataloader``, and that the heads of the model match their classes.

    The host libraries must be imported (datasets are looked up in their registries).

    Raises:
        UserError: for the first problem found.
    """
    cache: dict = {}
    for split in splits:
        if not config.get(f'{split}_dataloader'):
            continue
        for dataset in datasets_of(config, split, cache):
            check_dataset(dataset, config)
        for evaluator, where in evaluators_of(config, split):
            _check_evaluator(evaluator, where)
    compare_datasets(config, splits, cache)


def check_dataset(dataset: Dataset, config: Any) -> None:
    """Check one data set of a config with the check that is registered for its class, if there is one.

    Raises:
        UserError: for the first problem found.
    """
    DATA_CHECKS.import_from_location()
    checks = DATA_CHECKS.module_dict
    check_prefix_keys(dataset)
    checker = next((checks[name] for name in dataset.ancestors if name in checks), None)
    if checker is not None:
        checker(dataset, config.get('model') or {})
    check_prefix_folders(dataset)


def compare_datasets(config: Any, splits: Sequence[str], cache: dict) -> None:
    """Compare the data sets of a config with each other and with their evaluators.

    Raises:
        UserError: for the first difference found.
    """
    DATA_COMPARISONS.import_from_location()
    for compare in DATA_COMPARISONS.module_dict.values():
        compare(config, splits, cache)


def datasets_of(config: Any, split: str, cache: dict | None = None) -> list[Dataset]:
    """The datasets of ``<split>_dataloader``, without their wrappers; the hosts must be imported."""
    loader = config.get(f'{split}_dataloader')
    if not loader:
        return []
    annotated = split == 'train' or not any(part.get('format_only') for part, _ in evaluators_of(config, split))
    cache = {} if cache is None else cache
    found = []
    for part, where in unwrapped(loader['dataset'], f'{split}_dataloader.dataset'):
        kind = _kind(part, config.get('default_scope'))
        ancestors = tuple(parent.__name__ for parent in getattr(kind, '__mro__', (kind,)))
        classes = getattr(kind, 'METAINFO', {}).get('classes')
        found.append(Dataset(part, where, ancestors, tuple(classes) if classes else None, annotated, split == 'train',
                             cache, kind, config))
    return found


def evaluators_of(config: Any, split: str) -> list[tuple[dict, str]]:
    """The evaluators of a split, with their config keys."""
    evaluators = config.get(f'{split}_evaluator') or []
    evaluators = evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]
    return [(evaluator, f'{split}_evaluator' + (f'[{number}]' if number else ''))
            for number, evaluator in enumerate(evaluators)]


def unwrapped(dataset: dict, where: str) -> Iterator[tuple[dict, str]]:
    """Yield the datasets inside wrappers (``dataset=``) and concatenations (``datasets=``), with their config keys."""
    if isinstance(dataset.get('dataset'), dict):
        yield from unwrapped(dataset['dataset'], f'{where}.dataset')
    elif dataset.get('datasets'):
        for number, part in enumerate(dataset['datasets']):
            yield from unwrapped(part, f'{where}.datasets[{number}]')
    else:
        yield dataset, where


def _kind(config: dict, scope: str | None) -> Any:
    from mmengine.registry import DATASETS
    found = kind = config.get('type')
    if isinstance(kind, str):
        with DATASETS.switch_scope_and_registry(scope) as registry:
            found = registry.get(kind)
    if found is None:
        raise KeyError(f'{kind} is not in the {scope}::dataset registry')
    return found


def classes_of(dataset: Dataset) -> tuple[str, ...] | None:
    """The class names of a dataset: from ``metainfo`` in the config, or else the default of its class.

    Raises:
        UserError: ``classes`` is a string (a missing comma), or contains duplicates.
    """
    metainfo = dataset.config.get('metainfo') or {}
    classes = metainfo.get('classes')
    other = [key for key in metainfo if key != 'classes' and str(key).lower() == 'classes']
    if other:
        raise UserError(f'{dataset.where}.metainfo has the key {other[0]}, which the hosts ignore; write classes=')
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


def check_heads(model: Any, classes: int, reason: str, where: str = 'model') -> None:
    """Check that each ``num_classes`` in the heads of a model equals ``classes``.

    Args:
        model: the config of the model, or a part of it.
        classes: the expected number of classes.
        reason: where that number comes from, for the message.
        where: the key of ``model`` in the config.

    Raises:
        UserError: for the first head with another number.
    """
    if isinstance(model, (list, tuple)):
        for number, part in enumerate(model):
            check_heads(part, classes, reason, f'{where}.{number}')
    elif isinstance(model, dict):
        number = model.get('num_classes')
        if isinstance(number, int) and 'head' in where.split('.', 1)[-1] and number != classes:
            raise UserError(f'{where}.num_classes is {number}, but {reason}; '
                            f'set --cfg-options {where}.num_classes={classes} or change the config')
        for key, part in model.items():
            if key not in _HEADS_WITH_OTHER_CLASSES:
                check_heads(part, classes, reason, f'{where}.{key}')


def _check_evaluator(evaluator: dict, where: str) -> None:
    path = evaluator.get('ann_file')
    if (path and 'Coco' in str(evaluator.get('type')) and '://' not in path and not os.path.isfile(path)
            and (evaluator.get('backend_args') or {}).get('backend', 'local') == 'local'):
        raise UserError(f'no annotation file {path} ({where}.ann_file)')


def class_count(classes: Sequence[str]) -> str:
    return f'{plural(len(classes), "class")} ({listed(classes)})'
