"""What a test writes besides its scores: tables and pictures in ``<work-dir>/evaluation``."""
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .class_scores import kind_of_evaluator, number_of_labels
from .per_image import FOLDER

if TYPE_CHECKING:
    from mmengine.config import Config

MOST_CLASSES = 50  # of a confusion matrix


def report_into(config: 'Config', work_dir: Path, classes: Sequence[str] | None = None) -> list[tuple[str, Path]]:
    """Let the evaluators of a test write their reports.

    Each ``BinarySegMetric`` and COCO metric that has no ``out_dir`` gets a folder in ``work_dir``; mmdet's COCO metric
    is replaced by ours, with equal scores. A classification with mmpretrain's ``Accuracy`` or ``SingleLabelMetric``
    and at most 50 classes gets :class:`mmkcla.evaluation.confusion.ConfusionReport` besides.

    Args:
        config: the config; its test evaluators are changed.
        work_dir: of the test.
        classes: class names of the test data; None: unknown.

    Returns:
        What will be written, and where.
    """
    evaluators = config.test_evaluator
    evaluators = list(evaluators) if isinstance(evaluators, (list, tuple)) else [evaluators]
    kinds = [kind_of_evaluator(evaluator, config.get('default_scope')) for evaluator in evaluators]
    found: list[tuple[str, Path]] = []
    for evaluator, kind in zip(evaluators, kinds, strict=True):
        if kind == 'mmkcla.BinarySegMetric':
            found.append(('per image', _folder_for(evaluator, work_dir, len(found) + 1)))
        elif kind in ('mmdet.CocoMetric', 'mmkcla.CocoMetric') and not evaluator.get('format_only'):
            evaluator['type'] = 'mmkcla.CocoMetric'  # with equal scores
            found.append(('curves', _folder_for(evaluator, work_dir, len(found) + 1)))
    if {'mmpretrain.Accuracy', 'mmpretrain.SingleLabelMetric'} & set(kinds) and (
            number_of_labels(config, classes) or 0) <= MOST_CLASSES and 'mmkcla.ConfusionReport' not in kinds:
        config.test_evaluator = [*evaluators, dict(type='mmkcla.ConfusionReport', out_dir=str(work_dir / FOLDER))]
        found.append(('confusion matrix', work_dir / FOLDER / 'confusion_matrix.csv'))
    return found


def _folder_for(evaluator: Any, work_dir: Path, number: int) -> Path:
    """The ``out_dir`` of an evaluator; if it has none, it gets that of the number-th report."""
    if evaluator.get('out_dir') is None:
        evaluator['out_dir'] = str(work_dir / (FOLDER if number == 1 else f'{FOLDER}_{number}'))
    return Path(evaluator['out_dir'])
