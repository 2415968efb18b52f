"""Paired comparisons of configs that were tested with the same seeds on the same images."""
from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...evaluation.directions import kind_of
from ...evaluation.significance import (
    ALPHA,
    POOLED_RESAMPLES,
    PairedResult,
    compare_binary,
    compare_paired,
    compare_pooled,
    holm,
)
from ...utils.text import listed, one_line
from ..seeds.records import differences
from .detections import FEW_RESAMPLES, MANY, Detections, ap_score, is_ap
from .images import ImageScores, align, pooled_score, read_images

IMAGES, SEEDS = 'images', 'seeds'
_NO_SCORE = ('empty_truth',)  # properties of the data
_PREFERRED = ('DSC_mean', 'IoU_mean', 'top1', 'bbox_mAP', 'segm_mAP', 'mIoU', 'EPE')
# options of evaluators that add scores, or say where to write, and do not change a score
_ADDING = ('out_dir', 'worst', 'bootstrap', 'seed', 'hd95', 'distances', 'structure', 'boundary_f1', 'polyp_protocol',
           'outfile_prefix', 'classwise', 'collect_device', 'collect_dir', 'pictures', 'backend_args')


@dataclass
class Candidate:
    """A config with the results of its seeds.

    Args:
        name: in all outputs.
        folders: folder by seed.
        metrics: metrics by seed.
        evaluator: test evaluator, as plain values; None: not known.
        data: test data set without its pipelines, as plain values; None: not known.
        replaced: why the records of the images are not those of this row; empty if they are.
    """

    name: str
    folders: dict[int, Path]
    metrics: dict[int, Mapping[str, Any]]
    evaluator: Any = None
    data: Any = None
    replaced: str = ''
    _images: dict[int, ImageScores] = field(default_factory=dict, repr=False)
    _detections: dict[int, Detections] = field(default_factory=dict, repr=False)

    def images(self, seed: int) -> ImageScores:
        """Scores per image of a seed. Raises UserError if there are none."""
        if seed not in self._images:
            self._images[seed] = read_images(self._folder(seed), self.metrics[seed], self._empty)
        return self._images[seed]

    def detections(self, seed: int) -> Detections:
        """Detections of a seed. Raises UserError if there are none."""
        if seed not in self._detections:
            self._detections[seed] = Detections(self._folder(seed), self.metrics[seed])
        return self._detections[seed]

    def _folder(self, seed: int) -> Path:
        if self.replaced:
            raise UserError(self.replaced)
        return self.folders[seed]

    @cached_property
    def _empty(self) -> str:
        rules = [each.get('empty') for each in _listed(self.evaluator) if isinstance(each, Mapping)]
        return next(filter(None, rules), 'one')


@dataclass
class Comparison:
    """One metric of two candidates, compared over images or over seeds.

    Attributes:
        first, second: names of the candidates.
        metric: key of the metric.
        over: ``'images'`` or ``'seeds'``.
        seeds: the seeds that both have.
        result: of the test; None if it could not be made.
        p_holm: p corrected for all comparisons of this metric over the same units.
        comparisons: number of these.
        reason: why there is no result.
    """

    first: str
    second: str
    metric: str
    over: str
    seeds: list[int]
    result: PairedResult | None = None
    p_holm: float | None = None
    comparisons: int = 1
    reason: str = ''

    @property
    def verdict(self) -> str:
        """``'shown'``, ``'not shown'``, ``'too few'``, ``'contradictory'`` or ``'not compared'``."""
        result = self.result
        if result is None or result.p is None or self.p_holm is None:
            return 'not compared'
        if self.p_holm < ALPHA:
            return 'shown' if self._agrees(result) else 'contradictory'
        few = result.smallest_p is not None and result.smallest_p * self.comparisons >= ALPHA
        return 'too few' if few and result.zeros < result.n else 'not shown'

    @staticmethod
    def _agrees(result: PairedResult) -> bool:
        """Whether the ranks, the mean and its interval point in the same direction."""
        bounds = [bound for bound in (result.low, result.high) if bound is not None]
        signs = {math.copysign(1, bound) if bound else 0 for bound in [result.difference, *bounds]}
        if result.effect is not None:
            signs.add(math.copysign(1, result.effect) if result.effect else 0)
        return len(signs) == 1 and 0 not in signs


def compare(candidates: Sequence[Candidate], baseline: str | None = None,
            metrics: Collection[str] | None = None) -> list[Comparison]:
    """Compare candidates over images and over seeds.

    Args:
        candidates: with results.
        baseline: compare each candidate with this one only; None: all pairs.
        metrics: metrics to report; None: those of :func:`preferred`. Scores of a whole set (pooled, AP) are tested over
            images for these only, since each test evaluates the set thousands of times.

    Returns:
        comparisons of all metrics, the reported ones first.
    """
    candidates = [each for each in candidates if each.metrics]
    shown = list(metrics or preferred(candidates))
    names = dict.fromkeys([*shown, *(key for each in candidates for key in _metric_names(each))])
    if baseline is None:
        pairs = list(itertools.combinations(candidates, 2))
    else:
        pairs = [(each, other) for each in candidates for other in candidates
                 if other.name == baseline and each.name != baseline]
    found: list[Comparison] = []
    faults = {(one.name, two.name): _not_comparable(one, two) for one, two in pairs}
    for metric in names:
        family: dict[str, list[Comparison]] = {IMAGES: [], SEEDS: []}
        for one, two in pairs:
            if not all(any(math.isfinite(_value(values, metric)) for values in each.metrics.values())
                       for each in (one, two)):
                continue
            for over, result in _compare_pair(one, two, metric, metric in shown, faults[one.name, two.name]):
                family[over].append(result)
        for members in family.values():
            _correct(members)
            found += members
    return found


def preferred(candidates: Iterable[Candidate]) -> list[str]:
    """Metrics to report if none are chosen: the usual ones of each kind of model, otherwise the first."""
    names = list(dict.fromkeys(key for each in candidates for key in _metric_names(each)))
    usual = [key for wanted in _PREFERRED for key in names if key.rpartition('/')[2] == wanted]
    known = [key for key in names if kind_of(key).direction]
    return usual or known[:1] or names[:1]


def _metric_names(candidate: Candidate) -> list[str]:
    keys = dict.fromkeys(key for values in candidate.metrics.values() for key in values
                         if math.isfinite(_value(values, key)) and key.rpartition('/')[2] not in _NO_SCORE)
    return [key for key in keys if not (key.endswith(('_lo', '_hi')) and key[:-3] in keys)]


def _value(metrics: Mapping[str, Any], metric: str) -> float:
    """Value of a metric; NaN if there is none. The COCO tools report −1 if there are no such objects."""
    value = metrics.get(metric)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return math.nan if value == -1 and kind_of(metric).unit == 'fraction' else float(value)


def _compare_pair(one: Candidate, two: Candidate, metric: str, shown: bool,
                  fault: str) -> Iterable[tuple[str, Comparison]]:
    """Compare a metric over images and over seeds. ``fault``: why the pair cannot be compared."""
    seeds = sorted(seed for seed in one.metrics if seed in two.metrics)
    base = Comparison(one.name, two.name, metric, IMAGES, seeds)
    if not fault and not seeds:
        fault = f'no seed in common ({listed(one.metrics)} and {listed(two.metrics)}); run both with the same seeds'
    if fault:
        yield IMAGES, dataclasses.replace(base, reason=fault)
        return
    try:
        result = _over_images(one, two, metric, seeds, shown)
        if result is not None:
            yield IMAGES, dataclasses.replace(base, result=result)
    except UserError as error:
        yield IMAGES, dataclasses.replace(base, reason=one_line(error))
    values = [[_value(each.metrics[seed], metric) for seed in seeds] for each in (one, two)]
    yield SEEDS, dataclasses.replace(base, over=SEEDS, result=compare_paired(*values, student=True))


def _over_images(one: Candidate, two: Candidate, metric: str, seeds: Sequence[int], shown: bool) -> PairedResult | None:
    """Compare over images; None for a score of the whole set that is not reported.

    Raises:
        UserError: there are no scores of images, or not of the same ones.
    """
    if is_ap(metric):
        if not shown:
            return None
        score, images, size = ap_score(metric, *([each.detections(seed) for seed in seeds] for each in (one, two)))
        return compare_pooled(score, images, POOLED_RESAMPLES if size <= MANY else FEW_RESAMPLES)
    sets = align([each.images(seed) for each in (one, two) for seed in seeds],
                 [f'{each.name} (seed {seed})' for each in (one, two) for seed in seeds])
    first, second = sets[:len(seeds)], sets[len(seeds):]
    values = [[each.values(metric) for each in side] for side in (first, second)]
    if all(each is not None for side in values for each in side):
        if len(seeds) == 1 and metric.rpartition('/')[2].startswith('top'):
            return _scaled(compare_binary(*(side[0] / 100 for side in values)), 100)
        return compare_paired(*(np.mean(side, axis=0) for side in values))
    score = pooled_score(metric, first, second)
    if score is None:
        raise UserError(f'{metric} is not recorded for each image')
    return compare_pooled(score, len(sets[0].names)) if shown else None


def _scaled(result: PairedResult, factor: float) -> PairedResult:
    """Multiply scores by a factor."""
    names = ('first', 'second', 'difference', 'low', 'high')
    scaled = {name: None if getattr(result, name) is None else getattr(result, name) * factor for name in names}
    return dataclasses.replace(result, **scaled)


def _correct(members: Sequence[Comparison]) -> None:
    """Correct the p values of a family, in place."""
    corrected = holm([each.result.p if each.result else None for each in members])
    for each, p in zip(members, corrected, strict=True):
        each.p_holm, each.comparisons = p, sum(value is not None for value in corrected) or 1


def _not_comparable(one: Candidate, two: Candidate) -> str:
    """Why the results of two candidates must not be compared: other evaluators or data; empty if they may be."""
    if None in (one.evaluator, two.evaluator):
        missing = ' and '.join(each.name for each in (one, two) if each.evaluator is None)
        return f'it is not recorded how {missing} was tested; use --test-only to test again'
    sides = [dict(enumerate(_scoring(each.evaluator))) for each in (one, two)]
    if found := differences(*sides):
        return f'the evaluators differ: {_shown(found)}'
    fault = _images_fault(one, two)
    if fault is not None:
        return fault  # the images decide, not how a config writes their folder
    found = differences(_data(one.data), _data(two.data))
    return f'the test data differ: {_shown(found)}' if found else ''


def _images_fault(one: Candidate, two: Candidate) -> str | None:
    """How the recorded test images of two candidates differ; empty if they do not, None if there are no records."""
    first, second = (next(iter(each.metrics)) for each in (one, two))
    with suppress(UserError):
        sets = [one.images(first), two.images(second)]
        try:
            align(sets, [one.name, two.name])
        except UserError as error:
            return one_line(error)
        return ''
    with suppress(UserError):
        if one.detections(first).sha256 == two.detections(second).sha256:
            return ''
        return 'the annotations of the test sets differ'
    return None


def _scoring(evaluator: Any) -> list[Any]:
    """Evaluators without the options that do not change a score."""
    return [{key: value for key, value in each.items() if key not in _ADDING and not str(key).endswith('ann_file')}
            if isinstance(each, Mapping) else each for each in _listed(evaluator)]


def _data(data: Any) -> Mapping[str, Any]:
    """A data set with its paths in one spelling."""
    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return str(Path(value)) if isinstance(value, str) else value
    return plain(data) if isinstance(data, Mapping) else {}


def _shown(found: Sequence[str]) -> str:
    return listed([each.replace(' there, ', ' and ').replace(' now', '') for each in found], 3)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
