"""Compare the parts of a config that must belong together: train, val, test and their evaluators.

The number of a class is what a model learns. Where two data sets, or a data set and its evaluator, number their
classes or images differently, every metric is wrong without an error.
"""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from ..registry import DATA_COMPARISONS
from ..utils.text import listed, note
from .check import Dataset, classes_of, datasets_of, evaluators_of
from .detection.compare import compare_coco, file_order

_HOSTS = ('mmdet', 'mmseg', 'mmpretrain')
_OF_HOST = {'BinarySegMetric': 'mmseg'}  # metrics of this package without a base class of the host
_OTHER_LABELS = ('MultiTaskDataset', 'MultiLabelDataset', 'ReIDDataset', 'BaseVideoDataset')


@DATA_COMPARISONS.register_module()
def compare_config(config: Any, splits: Sequence[str], cache: dict) -> None:
    """Compare the data sets of ``splits`` with those of the training, and with their evaluators.

    Raises:
        UserError: for the first two parts that do not belong together.
    """
    train = datasets_of(config, 'train', cache)
    for split in splits:
        datasets = train if split == 'train' else datasets_of(config, split, cache)
        for dataset in datasets:
            _same_classes((train or datasets)[0], dataset)
            _same_labels((train or datasets)[0], dataset)
        if split != 'train':
            evaluators = evaluators_of(config, split)
            for evaluator, where in evaluators:
                _same_host(datasets, evaluator, where, config.get('default_scope'))
            compare_coco(config, split, datasets, evaluators)


def _same_classes(first: Dataset, other: Dataset) -> None:
    """The declared classes must be those of the training, in the same order."""
    if first is other or {*first.ancestors, *other.ancestors} & set(_OTHER_LABELS):
        return
    ours, theirs = classes_of(first), classes_of(other)
    if not ours or not theirs or ours == theirs or _both_binary(ours, theirs):
        return
    problem = class_difference(ours, theirs)
    raise UserError(f'the classes of {other.where} are not those of {first.where}: {problem}; set the same '
                    'metainfo=dict(classes=(...,)) for both')


def class_difference(learned: Sequence[str], here: Sequence[str]) -> str:
    """Say how two lists of classes differ."""
    lists = f'{listed(here, 10)} instead of {listed(learned, 10)}'
    if sorted(learned) == sorted(here):
        return f'another order ({lists}), so labels would be swapped'
    missing, new = ([name for name in names if name not in others] for names, others in
                    ((learned, here), (here, learned)))
    parts = [f'missing {listed(missing)}'] * bool(missing) + [f'unknown to the training {listed(new)}'] * bool(new)
    return f'{", ".join(parts)} ({lists})'


def _both_binary(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether both are background and one foreground, whose name differs between data sets of one task."""
    return len(ours) == len(theirs) == 2 and ours[0] == theirs[0] == 'background'


def check_checkpoint_classes(learned: Sequence[str] | None, here: Sequence[str] | None, filename: str,
                             where: str) -> None:
    """Compare the classes that a checkpoint learned with the labels of the data it is used on, in order.

    Raises:
        UserError: they differ.
    """
    if not learned or not here:
        return
    learned, here = tuple(map(str, learned)), tuple(map(str, here))
    if learned == here or _both_binary(learned, here):
        return
    remedy = ('the checkpoint decides: number the classes of the data as it does (a COCO file numbers them by the '
              'order of its categories)' if sorted(learned) == sorted(here) else
              'use data with the classes of the checkpoint, or --no-checks if only names were changed')
    raise UserError(f'checkpoint {filename} learned other classes than {where} has: {class_difference(learned, here)}; '
                    f'{remedy}')


def labels_of(config: Any, split: str) -> tuple[Sequence[str], str] | None:
    """Class names of a split by label, and their config key; None if they are unknown or have no single order."""
    for dataset in datasets_of(config, split):
        if set(dataset.ancestors) & set(_OTHER_LABELS):
            continue
        classes = file_order(dataset) or classes_of(dataset)
        if classes:
            return classes, dataset.where
    return None


def _same_labels(first: Dataset, other: Dataset) -> None:
    """mmseg: ``reduce_zero_label`` shifts every label by one, so it must be the same in training and evaluation."""
    if first is other or not all('BaseSegDataset' in dataset.ancestors for dataset in (first, other)):
        return
    ours, theirs = (_argument(dataset, 'reduce_zero_label') for dataset in (first, other))
    if bool(ours) != bool(theirs):
        raise UserError(f'{other.where}.reduce_zero_label is {bool(theirs)}, {first.where} has {bool(ours)}: all '
                        'labels would be shifted by one; set the same value for both')
    ours, theirs = (_argument(dataset, 'ignore_index') for dataset in (first, other))
    if ours != theirs:
        note(f'{other.where}.ignore_index is {theirs}, {first.where} has {ours}')


def _argument(dataset: Dataset, name: str) -> Any:
    """The value of a constructor argument: of the config, or the default of the class."""
    if name in dataset.config:
        return dataset.config[name]
    for parent in getattr(dataset.kind, '__mro__', ()):
        if '__init__' in vars(parent):
            parameter = inspect.signature(parent.__init__).parameters.get(name)
            if parameter is not None and parameter.default is not parameter.empty:
                return parameter.default
    return None


def _same_host(datasets: Sequence[Dataset], evaluator: dict, where: str, scope: str | None) -> None:
    """A metric of mmdet cannot read the results of an mmseg model, and so on."""
    kind = evaluator.get('type')
    from mmengine.registry import METRICS
    if isinstance(kind, str):
        with METRICS.switch_scope_and_registry(scope) as registry:
            kind = registry.get(kind)
    wanted = _host_of(kind)
    hosts = {host for dataset in datasets if (host := _host_of(dataset.kind))}
    if wanted and hosts and wanted not in hosts:
        data = f'{datasets[0].where}.type={datasets[0].ancestors[0]!r}'
        raise UserError(f'{where}.type={getattr(kind, "__name__", kind)!r} is a metric of {wanted}, but the data set '
                        f'is one of {", ".join(sorted(hosts))} ({data}); use a metric of the same library')


def _host_of(kind: Any) -> str | None:
    for parent in getattr(kind, '__mro__', ()):
        host = _OF_HOST.get(parent.__name__, parent.__module__.partition('.')[0])
        if host in _HOSTS:
            return host
    return None
