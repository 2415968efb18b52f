"""Which way each metric is better, and its unit. The names are the keys of ``metrics.json``.

The table covers the metrics of this package and the usual ones of mmdet, mmseg and mmpretrain.
"""
from __future__ import annotations

import re
from typing import Literal, NamedTuple

Direction = Literal['greater', 'less']
Unit = Literal['fraction', 'percent', 'pixels', '']


class Kind(NamedTuple):
    """Direction of a metric (None: neither way is better, or unknown), and its unit."""

    direction: Direction | None
    unit: Unit


UNKNOWN = Kind(None, '')
# The first pattern that matches a key decides. Keys are matched in full, then without the prefix before the last '/'.
_TABLE: tuple[tuple[str, Kind], ...] = (
    # mmpretrain: percentages
    (r'(.*/)?top\d+(_.*)?', Kind('greater', 'percent')),
    (r'(single|multi)-label/(precision|recall|f1-score|mAP)(_.*)?', Kind('greater', 'percent')),
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
    (r'(.*[._])?loss(_.*)?', Kind('less', '')),
)


def kind_of(metric: str) -> Kind:
    """Return direction and unit of a metric; :data:`UNKNOWN` for a name that is not in the table.

    Args:
        metric: key of ``metrics.json``, with or without the prefix of its evaluator. The bounds ``<key>_lo`` and
            ``<key>_hi`` of an interval have the direction of their key.
    """
    name = re.sub(r'_(lo|hi)$', '', metric)
    for candidate in (name, name.rpartition('/')[2]):
        for pattern, kind in _TABLE:
            if re.fullmatch(pattern, candidate):
                return kind
    return UNKNOWN


def direction(metric: str) -> Direction | None:
    """Return ``'greater'`` or ``'less'``, the values of mmengine's ``CheckpointHook.rule``; None if unknown.

    Example:
        >>> direction('HD95_mean'), direction('coco/bbox_mAP_50'), direction('empty_truth')
        ('less', 'greater', None)
    """
    return kind_of(metric).direction
