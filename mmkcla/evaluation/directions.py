"""Which way each metric is better, and its unit. The names are the keys of ``metrics.json``.

The table covers the metrics of this package and the usual ones of mmdet, mmseg and mmpretrain.
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..errors import UserError

Direction = Literal['greater', 'less']
Unit = Literal['fraction', 'percent', 'pixels', '']


class Kind(NamedTuple):
    """Direction of a metric (None: neither way is better, or unknown), and its unit."""

    direction: Direction | None
    unit: Unit


UNKNOWN, GREATER, LESS = Kind(None, ''), Kind('greater', ''), Kind('less', '')
# The first pattern that matches a key decides. Keys are matched in full, then without the prefix before the last '/'.
_TABLE: tuple[tuple[str, Kind], ...] = (
    # mmpretrain: percentages
    (r'(.*/)?top\d+(_.*)?', Kind('greater', 'percent')),
    (r'(single|multi)-label/(precision|recall|f1-score|mAP)([_.].*)?', Kind('greater', 'percent')),
    # mmkcla.BinarySegMetric
    (r'(m?IoU|DSC|mDice|Acc|Sens|Spec|Prec)_(pooled|mean)', Kind('greater', 'fraction')),
    (r'(TJ65|BF1|Smeasure|Emeasure|adpEmeasure|wFmeasure)_mean|maxEmeasure', Kind('greater', 'fraction')),
    (r'(m|max)(Dice|IoU)_256', Kind('greater', 'fraction')),
    (r'failed_share|MAE_mean', Kind('less', 'fraction')),
    (r'(HD95|HD95_pooled|ASD|ASSD|ASSD_halves)_mean', Kind('less', 'pixels')),
    (r'empty_truth', UNKNOWN),
    # mmkcla.StereoMetric
    (r'EPE', Kind('less', 'pixels')),
    (r'[13]px|D1', Kind('less', 'fraction')),
    # mmdet's and our CocoMetric
    (r'((bbox|segm)_)?mAP(_(50|75|s|m|l))?|AP(50|75)?|(mAP|AR)@\d+\S*|AR_[sml]@\d+', Kind('greater', 'fraction')),
    (r'.+_precision', Kind('greater', 'fraction')),
    # mmseg's IoUMetric: percentages
    (r'[am]Acc|mIoU|mDice|m(Fscore|Precision|Recall)|(IoU|Dice|Acc|Fscore|Precision|Recall)\.\S+',
     Kind('greater', 'percent')),
    # other metrics of mmdet, mmseg and mmpretrain
    (r'mMR', Kind('less', 'fraction')),
    (r'JI|[PRS]Q(_(th|st))?|AP[smlrcf]|HOTA|DetA|AssA|MOTA|IDF1', Kind('greater', '')),
    (r'FP|FN|IDSw', Kind('less', '')),
    (r'abs_rel|sq_rel|rmse(_log)?|log10|silog', Kind('less', '')),  # depth
    (r'd[123]', Kind('greater', 'fraction')),  # depth; stereo's D1 is above
    (r'(.*[._])?loss(_.*)?', Kind('less', '')),
)
# Metrics of others: words that a name may contain. Words of errors come first ("error of precision").
_LESS_WORD = r'loss(es)?|err(ors?)?|mae|r?mse|mape|hd|ass?d|epe|fid|nll|eer|perplexity|distance|m?mr|failed|failures'
_GREATER_WORD = (r'[ma]?acc(uracy)?|top|auc|auroc|precision|recall|sensitivity|specificity|m?ap|ar|m?dice|dsc|'
                 r'[mcg]?iou|f|m?fscore|psnr|ssim|kappa|mcc|pq|bleu|cider')
# The metric of save_best='auto', if the evaluator reports it; otherwise the first with a known direction, no loss.
_MAIN = (r'(bbox|segm)_mAP|mAP', r'mIoU', r'DSC_pooled', r'top1', r'f1-score', r'EPE', r'PQ', r'AP')


def kind_of(metric: str) -> Kind:
    """Return direction and unit of a metric.

    A name that is not in the table is judged by its words (``my/dice_score``); :data:`UNKNOWN` if that fails, too.

    Args:
        metric: key of ``metrics.json``, with or without the prefix of its evaluator. The bounds ``<key>_lo`` and
            ``<key>_hi`` of an interval have the direction of their key.
    """
    name = re.sub(r'_(lo|hi)$', '', metric)
    for candidate in (name, name.rpartition('/')[2]):
        for pattern, kind in _TABLE:
            if re.fullmatch(pattern, candidate):
                return kind
    words = {word.rstrip('0123456789') for word in re.split(r'[^a-z0-9]+', name.lower())}
    for pattern, way in ((_LESS_WORD, LESS), (_GREATER_WORD, GREATER)):
        if any(re.fullmatch(pattern, word) for word in words):
            return way
    return UNKNOWN


def direction(metric: str) -> Direction | None:
    """Return ``'greater'`` or ``'less'``, the values of mmengine's ``CheckpointHook.rule``; None if unknown.

    Example:
        >>> direction('HD95_mean'), direction('coco/bbox_mAP_50'), direction('empty_truth')
        ('less', 'greater', None)
    """
    return kind_of(metric).direction


def rule_for(metric: str, given: str | None, where: str) -> tuple[Direction, str | None]:
    """The ``rule`` of a hook that compares values of a metric.

    Args:
        metric: name of the metric.
        given: the rule in the config, None if there is none.
        where: config key of the hook, for messages.

    Returns:
        The rule, and a line to report if it is not the given one.

    Raises:
        UserError: the direction of the metric is unknown and no rule is given, or the rule is neither ``'greater'``
            nor ``'less'``.
    """
    if given not in (None, 'greater', 'less'):
        raise UserError(f"{where}.rule={given!r} must be 'greater' or 'less'")
    known = direction(metric)
    if known is None:
        if given is None:
            raise UserError(f"{where}: it is unknown whether greater or smaller values of {metric!r} are better; set "
                            f"{where}.rule='greater' or {where}.rule='less'")
        return given, None
    if given not in (None, known):
        better = {'greater': 'greater', 'less': 'smaller'}[known]
        return known, (f'{where}.rule={given!r} is replaced by {known!r}: {better} values of {metric} are better')
    return known, None


def main_metric(names: Iterable[str]) -> str | None:
    """The metric to select checkpoints by if none is named; None if no name has a known direction."""
    names = list(names)
    for pattern in _MAIN:
        for name in names:
            if re.fullmatch(pattern, name.rpartition('/')[2]):
                return name
    return next((name for name in names if direction(name) and 'loss' not in name), None)
