"""AP of resampled test images, from the detections that ``mmkcla test`` left in the folder of a seed."""
from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...utils.files import parse_json, sha256_of
from ...utils.text import one_line
from ..per_image import DETECTIONS, FOLDER
from .images import Score

_AP = re.compile(r'(bbox|segm)_mAP(?:_(50|75))?')
_SUMMARY = 100  # pycocotools takes AP from the 100 best detections of an image, AP50 and AP75 from proposal_nums[2]
_ROUNDED = 6e-4  # mmdet rounds AP to three decimals
FEW_RESAMPLES, MANY = 200, 200_000  # above this many images × classes × seeds, fewer samples are drawn


def is_ap(metric: str) -> bool:
    """Whether a metric is an AP over all sizes, which can be computed for any set of images."""
    return bool(_AP.fullmatch(metric.rpartition('/')[2]))


class Detections:
    """Detections of one seed, matched with the true objects by pycocotools.

    Args:
        folder: of the seed.
        metrics: of its test, by key.

    Raises:
        UserError: they cannot be read, or are not those of the test.
    """

    def __init__(self, folder: Path, metrics: Mapping[str, Any]) -> None:
        self.path, self.metrics = folder / FOLDER / DETECTIONS, metrics
        try:
            self.settings = parse_json(self.path.read_text(encoding='utf-8'))
            self.sha256, annotations = self.settings['sha256'], Path(self.settings['ann_file'])
        except FileNotFoundError:
            raise UserError(f'{folder} has no detections; use --test-only to test again') from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f'{self.path} cannot be read ({one_line(error)})') from None
        if not annotations.is_file():
            raise UserError(f'the annotations {annotations} of {self.path} do not exist')
        if sha256_of(annotations) != self.sha256:
            raise UserError(f'the annotations {annotations} have changed since the test; use --test-only to test again')
        self.annotations = annotations
        self._matched: dict[str, Any] = {}

    def matches(self, kind: str) -> Any:
        """Return pycocotools' ``COCOeval`` after ``evaluate``, for boxes (``'bbox'``) or masks (``'segm'``)."""
        if kind not in self._matched:
            self._matched[kind] = self._match(kind)
        return self._matched[kind]

    def _match(self, kind: str) -> Any:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        from ...evaluation.coco import repair_annotations
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO(str(self.annotations))
            repair_annotations(truth)
            found = parse_json((self.path.parent / self.settings['files'][kind]).read_text(encoding='utf-8'))
            for each in found if kind == 'segm' else ():
                each.pop('bbox', None)  # as in mmdet: the area is that of the mask
            evaluation = COCOeval(truth, truth.loadRes(found), kind)
            params = evaluation.params
            params.catIds, params.imgIds = list(self.settings['cat_ids']), sorted(truth.getImgIds())
            params.iouThrs = np.array(self.settings['iou_thrs'])
            params.maxDets = sorted({_SUMMARY, *self.settings['proposal_nums']})
            params.areaRng, params.areaRngLbl = params.areaRng[:1], params.areaRngLbl[:1]
            evaluation.evaluate()
        return evaluation

    def most(self, metric: str) -> int:
        """Largest number of detections of an image that the metric uses."""
        return self.settings['proposal_nums'][2] if metric.endswith(('_50', '_75')) else _SUMMARY


def ap_score(metric: str, first: Sequence[Detections], second: Sequence[Detections]) -> tuple[Score, int, int]:
    """AP of a set of images, for :func:`~mmkcla.evaluation.significance.compare_pooled`; the mean over the seeds.

    Returns:
        the function, the number of images, and the number of images × classes × seeds.

    Raises:
        UserError: other annotations, or detections that do not give the metric of the test.
    """
    match = _AP.fullmatch(metric.rpartition('/')[2])
    assert match
    kind, threshold = match.groups()
    if len({each.sha256 for each in [*first, *second]}) > 1:
        raise UserError('the annotations of the test sets differ: '
                        f'{first[0].annotations} and {second[0].annotations} have different contents')
    scores = []
    for one, two in zip(first, second, strict=True):
        matched = [each.matches(kind) for each in (one, two)]
        score = _Accumulator(*matched, threshold, one.most(metric))
        for each, codes in ((one, np.arange(score.images)), (two, np.arange(score.images) + score.images)):
            if not abs(score(codes) - float(each.metrics.get(metric) or 0)) <= _ROUNDED:
                raise UserError(f'{each.path} does not belong to metrics.json: {metric} is {score(codes):.3f} in the '
                                f'one, {each.metrics.get(metric)} in the other; use --test-only to test again')
        scores.append(score)
    size = scores[0].images * scores[0].classes * len(scores)
    return (lambda codes: float(np.mean([score(codes) for score in scores]))), scores[0].images, size


class _Accumulator:
    """AP of any images of two evaluations, by pycocotools' ``accumulate`` on their matches."""

    def __init__(self, first: Any, second: Any, threshold: str | None, most: int) -> None:
        self.evaluation, params = first, first.params
        self.images, self.classes = len(params.imgIds), len(params.catIds)
        self.table = [[*first.evalImgs[start:start + self.images], *second.evalImgs[start:start + self.images]]
                      for start in range(0, self.classes * self.images, self.images)]
        self.which = slice(None) if threshold is None else np.isclose(params.iouThrs, int(threshold) / 100)
        self.most = most

    def __call__(self, codes: np.ndarray) -> float:
        import copy
        evaluation = copy.copy(self.evaluation)
        evaluation.evalImgs = [row[code] for row in self.table for code in codes]
        evaluation.params = copy.copy(self.evaluation.params)
        evaluation.params.imgIds, evaluation.params.maxDets = list(range(len(codes))), [self.most]
        evaluation._paramsEval = evaluation.params
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation.accumulate()
        precision = evaluation.eval['precision'][self.which]
        precision = precision[precision > -1]
        return float(precision.mean()) if precision.size else -1.
