"""Scores of each class in a test: on by default for few classes, as a table and in metrics.json."""
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..utils.tables import markdown_table

if TYPE_CHECKING:
    from mmengine.config import Config

MOST_CLASSES = 20
_COCO = {'': 'AP', 'bbox_': 'bbox AP', 'segm_': 'segm AP'}  # prefix of <class>_precision: column
_SCORES = ('IoU', 'Dice', 'Acc', 'Fscore', 'Precision', 'Recall', 'precision', 'recall', 'f1-score', 'support')
_COUNTS = ('support',)


def score_classes(config: 'Config', classes: Sequence[str] | None) -> None:
    """Let the COCO and IoU metrics of a test return the scores of each class, if there are at most 20 classes. A
    classification with mmpretrain's ``Accuracy`` gets :class:`mmkcla.evaluation.class_scores.ClassScores` besides.

    An evaluator with ``classwise`` set is left alone, except that mmdet's metric is replaced by ours, with equal
    results, where it would overwrite the scores of boxes with those of masks.

    Args:
        config: the config; its test evaluators are changed.
        classes: class names of the test data; None: unknown.
    """
    few = classes is not None and len(classes) <= MOST_CLASSES
    evaluators = config.test_evaluator
    evaluators = list(evaluators) if isinstance(evaluators, (list, tuple)) else [evaluators]
    kinds = [kind_of_evaluator(evaluator, config.get('default_scope')) for evaluator in evaluators]
    if 'mmpretrain.Accuracy' in kinds and 'mmkcla.ClassScores' not in kinds and (
            number_of_labels(config, classes) or MOST_CLASSES + 1) <= MOST_CLASSES:
        config.test_evaluator = [*evaluators, dict(type='mmkcla.ClassScores')]
    for evaluator, kind in zip(evaluators, kinds, strict=True):
        if kind in ('mmdet.CocoMetric', 'mmkcla.CocoMetric'):
            if few and evaluator.get('classwise') is None:
                evaluator.update(type='mmkcla.CocoMetric', classwise=True)  # ours takes ids of every kind
            metrics = evaluator.get('metric', 'bbox')
            if evaluator.get('classwise') and isinstance(metrics, (list, tuple)) and len(metrics) > 1:
                evaluator['type'] = 'mmkcla.CocoMetric'
        elif kind == 'mmseg.IoUMetric' and few:
            evaluator['type'] = 'mmkcla.IoUMetric'


def number_of_labels(config: 'Config', classes: Sequence[str] | None) -> int | None:
    """The number of classes of a classification: of the data, or else of the head (class folders); None: unknown."""
    head = config.model.get('head') if config.get('model') else None
    number = len(classes) if classes else head.get('num_classes') if isinstance(head, dict) else None
    return number if isinstance(number, int) else None


def kind_of_evaluator(evaluator: Any, scope: str | None) -> str:
    """``host.Class`` of an evaluator's type, found in the registry of a scope."""
    kind = evaluator.get('type') if hasattr(evaluator, 'get') else None
    if isinstance(kind, str):
        from mmengine.registry import METRICS
        with METRICS.switch_scope_and_registry(scope) as registry:
            kind = registry.get(kind)
    return f'{getattr(kind, "__module__", "").partition(".")[0]}.{getattr(kind, "__name__", "")}'


def class_table(metrics: Mapping[str, float], classes: Sequence[str]) -> list[str]:
    """The lines of a table with one row for each class; empty if the metrics have no scores of classes."""
    rows: dict[str, dict[str, str]] = {label: {} for label in classes}
    for key, value in metrics.items():
        name = key.rpartition('/')[2] if not any(key.endswith(f'.{label}') for label in classes) else key
        for label in classes:
            prefix = name.removesuffix(f'{label}_precision')
            if prefix != name and prefix in _COCO:
                rows[label][_COCO[prefix]] = _text(value, 3)
            score = name.removesuffix(f'.{label}').rpartition('/')[2]
            if name.endswith(f'.{label}') and score in _SCORES:
                rows[label][score] = _text(value, 0 if score in _COUNTS else 2)
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    if not columns:
        return []
    return markdown_table(['class', *columns], [[label, *(row.get(column, '-') for column in columns)]
                                                for label, row in rows.items()])


def _text(value: float | None, digits: int) -> str:
    return '-' if value is None or value != value or value == -1 else f'{value:.{digits}f}'
