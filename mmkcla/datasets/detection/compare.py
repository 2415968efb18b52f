"""Compare COCO files that must belong together: of the training, of the loaders, and of the evaluators."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...utils.text import listed, note
from ..check import Dataset, classes_of, datasets_of
from .coco.cache import cached_table

_OTHER_FILES = ('LVISV05Dataset', 'LVISV1Dataset', 'CocoPanopticDataset', 'V3DetDataset', 'CocoCaptionDataset')
_MASKS = re.compile(r'mask|panoptic|segm|ins(sepbn)?head|solo', re.IGNORECASE)


@dataclass
class Index:
    """Images and categories of a COCO file, in file order."""

    images: dict[Any, str]  # file name by id
    categories: dict[Any, str]  # name by id

    def order(self, classes: Sequence[str], by_id: bool = False) -> list[str]:
        """The classes by label: mmdet and its metric number them as the file (or the id) orders the categories."""
        ids = sorted(self.categories) if by_id else self.categories
        return [self.categories[id_] for id_ in ids if self.categories[id_] in classes]


def read_index(path: Path, cache: dict) -> Index | None:
    """Read images and categories of a COCO file; None if it is not one (the data check says what is wrong)."""
    key = ('coco index', os.path.realpath(path))
    if key not in cache:
        cache[key] = _read_index(path)
    return cache[key]


def _read_index(path: Path) -> Index | None:
    try:
        table = cached_table(path)
        return Index(dict(zip(table.image_ids, table.names, strict=True)),
                     dict(zip(table.category_ids, table.classes, strict=True))) if table.names else None
    except (OSError, UserError, TypeError):
        return None


def is_coco(dataset: Dataset) -> bool:
    """Whether a data set is read from a local file in COCO format."""
    places = (dataset.config.get('data_root'), dataset.config.get('ann_file'))
    return ('CocoDataset' in dataset.ancestors and not set(dataset.ancestors) & set(_OTHER_FILES)
            and bool(dataset.config.get('ann_file')) and not any('://' in str(place) for place in places)
            and (dataset.config.get('backend_args') or {}).get('backend', 'local') == 'local')


def _file(dataset: Dataset) -> Path:
    return dataset.path(dataset.config['ann_file'])


def index_of(dataset: Dataset) -> Index | None:
    """Images and categories of a data set in COCO format; None if its file cannot be read here."""
    return read_index(_file(dataset), dataset.cache) if is_coco(dataset) else None


def file_order(dataset: Dataset) -> list[str] | None:
    """The classes of a data set by label, as its file orders them; None if the file cannot be read here."""
    index, classes = index_of(dataset), classes_of(dataset)
    if index is None or not classes:
        return None
    return index.order(classes, 'Objects365V1Dataset' in dataset.ancestors)


def order_problem(dataset: Dataset, classes: Sequence[str], order: Sequence[str], train: Sequence[Dataset]) -> str:
    """What to do where a file orders its categories in another way than ``classes``.

    Args:
        dataset: the data set, and its declared ``classes``.
        order: the order of its file.
        train: the data sets of the training; what they learn decides.
    """
    learned = next((found for one in train if one.where != dataset.where and (found := file_order(one))), None)
    if learned is None and not dataset.trained_on:  # the training set is not on this machine
        learned = next((list(found) for one in train if (found := classes_of(one))), None)
    start = ('the classes are not in the order of the categories of the annotation file, so their names would be '
             'swapped')
    if learned is None or list(learned) == list(order):
        return f'{start}; write classes=({", ".join(map(repr, order))},)'
    return (f'{start}; the training has the order {", ".join(learned)}, so put the list "categories" of '
            f'{_file(dataset)} in this order (ids can stay)')


def compare_coco(config: Any, split: str, datasets: Sequence[Dataset], evaluators: Sequence[tuple[dict, str]]) -> None:
    """Compare the files of a split with that of the training, and with that of the evaluator.

    Raises:
        UserError: for the first two files that do not belong together.
    """
    train = datasets_of(config, 'train', datasets[0].cache if datasets else {})
    learned = next(((one, order) for one in train if (order := file_order(one))), None)
    for dataset in datasets:
        order = file_order(dataset)
        if learned and order and sorted(order) == sorted(learned[1]) and order != learned[1]:
            raise UserError(
                f'{_file(dataset)} ({dataset.where}) orders its categories {listed(order, 10)}, the training file '
                f'{_file(learned[0])} {listed(learned[1], 10)}: the labels would be swapped; put the list "categories" '
                'of the first in the order of the second (ids can stay)')
    for evaluator, where in evaluators:
        kind = evaluator.get('type')
        name = str(kind if isinstance(kind, str) else getattr(kind, '__name__', kind)).split('.')[-1]
        if not name.startswith('Coco') or not name.endswith('Metric') or 'Panoptic' in name or 'Caption' in name:
            continue
        _compare_masks(config, evaluator, where)
        if evaluator.get('ann_file') and datasets and all(map(is_coco, datasets)):
            _compare_evaluator(config[f'{split}_dataloader'], f'{split}_dataloader', datasets, evaluator, where)


def _compare_evaluator(loader: dict, place: str, datasets: Sequence[Dataset], evaluator: dict, where: str) -> None:
    for wrapper, key in _repeating(loader['dataset'], f'{place}.dataset'):
        raise UserError(f'{key}.type={wrapper!r} repeats images, so each would be evaluated more than once; use the '
                        'data set inside it')
    file = Path(evaluator['ann_file'])
    truth = read_index(file, datasets[0].cache)
    indexes = [index_of(dataset) for dataset in datasets]
    if truth is None or any(index is None for index in indexes):
        return
    seen: dict[Any, tuple[str, Dataset]] = {}
    for dataset, index in zip(datasets, indexes, strict=True):
        if same := [id_ for id_ in index.images if id_ in seen]:
            raise UserError(f'{dataset.where} and {seen[same[0]][1].where} both have an image with the id {same[0]!r} '
                            f'({len(same)} such ids), so {where} would confuse them; give the images different ids')
        seen |= {id_: (name, dataset) for id_, name in index.images.items()}
        classes = classes_of(dataset) or ()
        order = file_order(dataset)
        expected = truth.order(classes, bool(evaluator.get('sort_categories')))
        if order != expected:
            raise UserError(f'{where}.ann_file={str(file)!r} numbers the classes {listed(expected, 10) or "none"}, '
                            f'{dataset.where} {listed(order or (), 10)}: results would count for other classes; use '
                            f'the file of the data set, {_file(dataset)}')
    _compare_images({id_: name for id_, (name, _) in seen.items()}, truth.images, file, datasets, where)
    for dataset, index in zip(datasets, indexes, strict=True):
        _compare_part(dataset, index, where)


def _compare_images(loaded: dict, truth: dict, file: Path, datasets: Sequence[Dataset], where: str) -> None:
    ours = ', '.join(str(_file(dataset)) for dataset in datasets)
    lacking = [id_ for id_ in loaded if id_ not in truth]
    extra = [id_ for id_ in truth if id_ not in loaded]
    other = [id_ for id_ in loaded if id_ in truth and not _same_file(loaded[id_], truth[id_])]
    if lacking:
        problem = f'lacks {len(lacking)} of {len(loaded)} images of the data set (ids {listed(map(repr, lacking))})'
    elif other:
        problem = (f'has other images under {len(other)} of {len(loaded)} ids (id {other[0]!r}: '
                   f'{truth[other[0]]} instead of {loaded[other[0]]})')
    elif extra:
        problem = (f'has {len(extra)} images that the data set lacks (ids {listed(map(repr, extra))}); their objects '
                   'would count as missed')
    else:
        return
    raise UserError(f'{where}.ann_file={str(file)!r} {problem}; use the file of {datasets[0].where}: {ours}')


def _same_file(name: str, other: str) -> bool:
    """Whether two names are the same file, seen from two folders."""
    first, second = (part.replace('\\', '/').lstrip('./').split('/') for part in (name, other))
    shared = min(len(first), len(second))
    return first[-shared:] == second[-shared:]


def _compare_part(dataset: Dataset, index: Index, where: str) -> None:
    """``indices`` and filters leave out images that the evaluator still expects."""
    indices, total = dataset.config.get('indices'), len(index.images)
    if indices is not None:
        taken = min(abs(indices), total) if isinstance(indices, int) else len(set(indices))
        if taken < total:
            raise UserError(f'{dataset.where}.indices takes {taken} of {total} images, but {where}.ann_file has all of '
                            'them, so the objects of the others would count as missed; write a file with these images '
                            'for both, or remove indices')
    filters = dataset.config.get('filter_cfg') or {}
    if not dataset.config.get('test_mode') and (filters.get('filter_empty_gt') or filters.get('min_size')):
        note(f'{dataset.where} has filter_cfg without test_mode=True, so images without objects are not evaluated; set '
             'test_mode=True')


def _repeating(dataset: dict, where: str) -> Iterator[tuple[str, str]]:
    kind = str(getattr(dataset.get('type'), '__name__', dataset.get('type'))).split('.')[-1]
    if kind == 'ClassBalancedDataset' or kind == 'RepeatDataset' and dataset.get('times', 1) > 1:
        yield kind, where
    if isinstance(dataset.get('dataset'), dict):
        yield from _repeating(dataset['dataset'], f'{where}.dataset')
    for number, part in enumerate(dataset.get('datasets') or ()):
        yield from _repeating(part, f'{where}.datasets[{number}]')


def _compare_masks(config: Any, evaluator: dict, where: str) -> None:
    metrics = evaluator.get('metric', 'bbox')
    if 'segm' not in (metrics if isinstance(metrics, (list, tuple)) else [metrics]):
        return
    model = {key: value for key, value in config['model'].items() if not key.endswith('_cfg')}
    if not any(_MASKS.search(text) for text in _texts(model)):
        raise UserError(f"{where}.metric has 'segm', but the model predicts no masks; use metric='bbox'")


def _texts(part: Any) -> Iterator[str]:
    """Keys and type names of a config."""
    if isinstance(part, dict):
        for key, value in part.items():
            if value is None:
                continue
            yield str(key)
            if key == 'type':
                yield str(getattr(value, '__name__', value))
            yield from _texts(value)
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from _texts(value)
