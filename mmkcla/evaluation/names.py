"""Keys that an evaluator returns, known before the evaluation: from its arguments and the class names."""
from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..utils.text import did_you_mean

_COCO_ITEMS = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
_PROPOSAL_ITEMS = ('AR@100', 'AR@300', 'AR@1000', 'AR_s@1000', 'AR_m@1000', 'AR_l@1000')
_CLASS_SCORE = r'(IoU|Dice|Acc|Fscore|Precision|Recall|precision|recall|f1-score|support)\..|.+_precision$'
_OF_IOU = {'mIoU': ('mIoU', 'mAcc'), 'mDice': ('mDice', 'mAcc'), 'mFscore': ('mFscore', 'mPrecision', 'mRecall')}


def metric_names(metric: Any, classes: Sequence[str] | None = None) -> list[str] | None:
    """Return the keys of ``metric.evaluate`` with their prefix; None if they are not known before.

    Args:
        metric: a built metric: of this package, or a usual one of mmdet, mmseg or mmpretrain. A subclass with another
            ``compute_metrics`` may return other keys, so they are not known.
        classes: class names of the data, for the scores of single classes.
    """
    for parent in type(metric).__mro__:
        rule = _RULES.get(f'{parent.__module__.partition(".")[0]}.{parent.__name__}')
        if rule is not None:
            same = type(metric).compute_metrics is parent.compute_metrics or 'mmkcla' in type(metric).__module__
            found = rule(metric, classes) if same else None
            return None if found is None else [f'{metric.prefix}/{name}' if metric.prefix else name for name in found]
    own = getattr(metric, 'names', None)
    return None if own is None else list(own)


def is_class_score(name: str) -> bool:
    """Whether a metric is the score of a single class, as ``IoU.<class>`` or ``<class>_precision``."""
    return any(re.match(_CLASS_SCORE, part) for part in (name, name.partition('/')[2]))


def nearest_name(wanted: str, available: Iterable[str]) -> str:
    """Return a suggestion as :func:`~mmkcla.utils.text.did_you_mean`, whatever the case and the prefix of the name."""
    available = list(available)
    short = {name.rpartition('/')[2].lower(): name for name in reversed(available)}
    word = wanted.rpartition('/')[2].lower()
    start = next((name for name in available if word in name.rpartition('/')[2].lower()), None)
    if name := short.get(word) or start:
        return f' (did you mean {name!r}?)'
    near = difflib.get_close_matches(word, list(short), n=1)
    return f' (did you mean {short[near[0]]!r}?)' if near else did_you_mean(wanted, available)


def _coco(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    if metric.format_only:
        return []
    if metric.classwise and metric._coco_api is not None:
        classes = [category['name'] for category in metric._coco_api.cats.values()]
    if metric.classwise and classes is None:
        return None
    found: list[str] = []
    for name in metric.metrics:
        if name == 'proposal_fast':
            found += [f'AR@{number}' for number in metric.proposal_nums]
        elif name == 'proposal':
            found += metric.metric_items or _PROPOSAL_ITEMS
        else:
            found += [f'{name}_{item}' for item in metric.metric_items or _COCO_ITEMS]
            start = f'{name}_' if len(metric.metrics) > 1 and 'mmkcla' in type(metric).__module__ else ''
            found += [f'{start}{label}_precision' for label in classes or ()] if metric.classwise else []
    return found


def _voc(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    if metric.metric == 'mAP':
        return ['mAP', *(f'AP{int(limit * 100):02d}' for limit in metric.iou_thrs)]
    found = [f'recall@{number}@{limit}' for number in metric.proposal_nums for limit in metric.iou_thrs]
    return found + [f'AR@{number}' for number in metric.proposal_nums if len(metric.iou_thrs) > 1]


def _iou(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    if metric.format_only:
        return []
    if set(metric.metrics) - _OF_IOU.keys():
        return None
    found = list(dict.fromkeys(['aAcc', *(key for name in metric.metrics for key in _OF_IOU[name])]))
    if 'mmkcla' in type(metric).__module__:
        found += [f'{key[1:]}.{label}' for key in found[1:] for label in classes or ()]
    return found


def _depth(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    return [] if metric.format_only else list(metric.metrics)


def _thresholds(names: Iterable[str], limits: Sequence[float | None]) -> list[str]:
    if len(limits) == 1:
        return list(names)
    return [f'{name}_no-thr' if limit is None else f'{name}_thr-{limit:.2f}' for name in names for limit in limits]


def _accuracy(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    return _thresholds([f'top{rank}' for rank in metric.topk], metric.thrs)


def _averaged(names: Iterable[str], average: str | None) -> list[str]:
    end = {None: '_classwise', 'macro': ''}.get(average, f'_{average}')
    return [name + end for name in names]


def _single_label(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    return _averaged(_thresholds(metric.items, metric.thrs), metric.average)


def _average_precision(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    return ['AP_classwise' if metric.average is None else 'mAP']


def _nothing(metric: Any, classes: Sequence[str] | None) -> list[str] | None:
    return []


_RULES: dict[str, Callable[[Any, Sequence[str] | None], list[str] | None]] = {
    'mmdet.CocoMetric': _coco, 'mmdet.VOCMetric': _voc, 'mmdet.DumpDetResults': _nothing,
    'mmseg.IoUMetric': _iou, 'mmseg.DepthMetric': _depth,
    'mmkcla.ClassScores': lambda metric, classes: None if classes is None else [
        f'{item}.{name}' for name in classes for item in metric.items],
    'mmpretrain.Accuracy': _accuracy, 'mmpretrain.SingleLabelMetric': _single_label,
    'mmpretrain.AveragePrecision': _average_precision, 'mmengine.DumpResults': _nothing,
}
