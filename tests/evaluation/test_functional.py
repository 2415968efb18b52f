"""The functional form of each score equals MONAI, medpy and PySODMetrics on masks of every kind, and the metric."""
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from segmentation_samples import cases, evaluate

from mmkcla.errors import UserError
from mmkcla.evaluation import functional as F
from mmkcla.evaluation.segmentation.structure import stretched

NUMBER, SHAPE = 324, (13, 17)


def masks(seed=0):
    """324 pairs ``(N, H, W)``: every pair of empty, full, one pixel, part, circle and noise, nine times each."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SHAPE[0], :SHAPE[1]]

    def mask(kind):
        found = np.zeros(SHAPE, bool)
        if kind == 1:
            found[:] = True
        elif kind == 2:
            found[rng.integers(SHAPE[0]), rng.integers(SHAPE[1])] = True
        elif kind == 3:
            found[:, :rng.integers(1, SHAPE[1])] = True
        elif kind == 4:
            found = (y - rng.integers(SHAPE[0]))**2 + (x - rng.integers(SHAPE[1]))**2 < rng.integers(2, 60)
        elif kind == 5:
            found = rng.random(SHAPE) > rng.random()
        return found
    chosen = [(first, second) for first in range(6) for second in range(6)] * (NUMBER // 36)
    return (np.stack([mask(pair[side]) for pair in chosen]) for side in (0, 1))


PREDICTION, TARGET = masks()
FILLED = PREDICTION.any((1, 2)) & TARGET.any((1, 2))  # references have no value for empty masks, or another rule
ONE_EMPTY = PREDICTION.any((1, 2)) != TARGET.any((1, 2))
DIAGONAL = np.hypot(*SHAPE)


def one_channel(mask):
    return torch.tensor(mask)[:, None].float()


@pytest.mark.parametrize(('function', 'name'), [
    (F.precision, 'precision'), (F.recall, 'sensitivity'), (F.specificity, 'specificity'), (F.accuracy, 'accuracy')])
def test_counts_equal_monai(function, name):
    monai = pytest.importorskip('monai.metrics')
    matrix = monai.get_confusion_matrix(one_channel(PREDICTION), one_channel(TARGET))
    expected = monai.compute_confusion_matrix_metric(name, matrix)[:, 0].numpy()
    np.testing.assert_allclose(function(PREDICTION, TARGET), expected, atol=1e-6)  # NaN at the same places


@pytest.mark.parametrize(('function', 'name'), [(F.dice, 'compute_dice'), (F.iou, 'compute_iou')])
@pytest.mark.parametrize('empty', ['one', 'skip'])
def test_overlap_equals_monai(function, name, empty):
    monai = pytest.importorskip('monai.metrics')
    reference = partial(getattr(monai, name), ignore_empty=False)
    foreground = reference(one_channel(PREDICTION), one_channel(TARGET))[:, 0].numpy()
    neither = ~PREDICTION.any((1, 2)) & ~TARGET.any((1, 2))
    found = function(PREDICTION, TARGET, empty=empty)
    np.testing.assert_allclose(found[~neither], foreground[~neither], atol=1e-6)
    assert neither.sum() == 9
    np.testing.assert_array_equal(found[neither], 1. if empty == 'one' else np.nan)
    background = function(~PREDICTION, ~TARGET, empty=empty)
    mean = {'compute_dice': F.mean_dice, 'compute_iou': F.mean_iou}[name]
    np.testing.assert_allclose(mean(PREDICTION, TARGET, empty=empty), (found + background) / 2, atol=1e-12)


def test_distances_equal_monai():
    monai = pytest.importorskip('monai.metrics')
    first, second = one_channel(PREDICTION[FILLED]), one_channel(TARGET[FILLED])
    distance = partial(monai.compute_average_surface_distance, first, second, include_background=True)
    for function, expected in (
            (F.hausdorff_95, monai.compute_hausdorff_distance(first, second, include_background=True, percentile=95)),
            (F.average_surface_distance, distance()), (F.average_symmetric_surface_distance, distance(symmetric=True))):
        found = function(PREDICTION, TARGET)
        np.testing.assert_allclose(found[FILLED], expected[:, 0].numpy(), atol=1e-4)
        np.testing.assert_allclose(found[ONE_EMPTY], DIAGONAL)
        assert FILLED.sum() > 200 and ONE_EMPTY.sum() > 60


def test_the_other_conventions_equal_medpy():
    medpy = pytest.importorskip('medpy.metric.binary')
    pairs = list(zip(PREDICTION[FILLED], TARGET[FILLED], strict=True))

    def halves(first, second):
        return (medpy.asd(first, second) + medpy.asd(second, first)) / 2
    for function, reference in ((F.hausdorff_95_pooled, medpy.hd95), (F.average_surface_distance, medpy.asd),
                                (F.average_symmetric_surface_distance, medpy.assd),
                                (F.average_symmetric_surface_distance_halves, halves)):
        found = function(PREDICTION, TARGET)
        np.testing.assert_allclose(found[FILLED], [reference(*pair) for pair in pairs], atol=1e-5)
        np.testing.assert_allclose(found[ONE_EMPTY], DIAGONAL)
    both = F.hausdorff_95(PREDICTION, TARGET), F.hausdorff_95_pooled(PREDICTION, TARGET)
    assert (np.abs(both[0] - both[1]) > 0.1).sum() > 50  # two conventions, not one


def test_maps_equal_pysodmetrics():
    sod = pytest.importorskip('py_sod_metrics')
    scores = np.random.default_rng(1).random((NUMBER, *SHAPE)) * 0.6 + 0.4 * PREDICTION
    expected = {name: [] for name in ('mae', 'sm', 'em', 'best', 'adp', 'wfm')}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for score, mask in zip(scores, TARGET, strict=True):
            found = {}
            for measure in (sod.MAE(), sod.Smeasure(), sod.Emeasure(), sod.WeightedFmeasure()):
                measure.step(score, mask, normalize=False)
                found |= measure.get_results()
            curve = found['em']['curve']
            found |= dict(em=curve.mean(), best=curve.max(), adp=found['em']['adp'])
            for name, values in expected.items():
                values.append(found[name])
    for function, name in ((F.mean_absolute_error, 'mae'), (F.e_measure, 'em'), (F.max_e_measure, 'best'),
                           (F.adaptive_e_measure, 'adp'), (F.weighted_f_measure, 'wfm')):
        np.testing.assert_allclose(function(scores, TARGET), expected[name], atol=1e-10, err_msg=name)
    ours, theirs = F.s_measure(scores, TARGET), np.array(expected['sm'])
    np.testing.assert_allclose(ours[~np.isnan(theirs)], theirs[~np.isnan(theirs)], atol=1e-10)
    assert np.isnan(theirs).mean() < 0.1 and np.isfinite(ours).all()


def test_boundary_f1_by_hand():
    """One predicted pixel near one of two true pixels: precision 1, recall 1/2."""
    prediction, target = np.zeros((2, 1, 11), int)
    prediction[0, 1] = target[0, 0] = target[0, 10] = 1
    assert F.boundary_f1(prediction, target) == pytest.approx(2 / 3)
    assert F.boundary_f1(prediction, target, tolerance=0.5) == 0 == F.boundary_f1(prediction, 0 * target)
    assert F.boundary_f1(0 * target, 0 * target) == 1
    assert np.isnan(F.boundary_f1(0 * target, 0 * target, empty='skip'))


def test_polyp_protocol_and_jaccard_by_hand():
    target = [[1, 1], [0, 0]]
    # the levels are 255, 102, 0, 0: all pixels are found at threshold 0, two up to 102, and one at the 153 others
    assert F.dice_256([[1., .4], [0., 0.]], target) == pytest.approx((2 / 3 + 102 + 153 * 2 / 3) / 256)
    assert F.iou_256([[1., .4], [0., 0.]], target) == pytest.approx((0.5 + 102 + 153 * 0.5) / 256)
    assert F.iou_65([[[1, 1], [0, 0]], [[1, 0], [0, 0]]], [target] * 2).tolist() == [1, 0]


FUNCTIONS = [getattr(F, name) for name in F.__all__]
METRIC_KEYS = dict(
    accuracy='Acc', adaptive_e_measure='adpEmeasure', average_surface_distance='ASD',
    average_symmetric_surface_distance='ASSD', average_symmetric_surface_distance_halves='ASSD_halves',
    boundary_f1='BF1', dice='DSC', e_measure='Emeasure', hausdorff_95='HD95', hausdorff_95_pooled='HD95_pooled',
    iou='IoU', iou_65='TJ65', mean_absolute_error='MAE', mean_dice='mDice', mean_iou='mIoU', precision='Prec',
    recall='Sens', s_measure='Smeasure', specificity='Spec', weighted_f_measure='wFmeasure')


def test_equal_to_the_metric_and_none_is_missing():
    """The metric's mean over images is the mean of the function, for every score of an image; ignored pixels too."""
    samples = cases(4)
    for sample in samples:
        sample.gt_sem_seg.data[..., :3, :5] = 255
    metrics = evaluate(samples, bootstrap=0, hd95=True, distances=True, structure=True, boundary_f1=True,
                       polyp_protocol=True)
    maps = [sample.seg_logits.data.diff(dim=0)[0].sigmoid().double() for sample in samples]
    targets = [sample.gt_sem_seg.data[0] for sample in samples]
    keys = {name: f'{key}_mean' for name, key in METRIC_KEYS.items()} | dict(dice_256='mDice_256', iou_256='mIoU_256')
    assert set(keys) | {'max_e_measure'} == set(F.__all__)  # the metric takes the maximum over the whole set
    assert {key for key in metrics if key.endswith('_mean')} <= set(keys.values())
    for name, key in keys.items():
        scores = [stretched(each) for each in maps] if name.endswith('measure') or 'absolute' in name else maps
        found = np.nanmean([getattr(F, name)(*pair) for pair in zip(scores, targets, strict=True)])
        assert metrics[key] == pytest.approx(found, abs=1e-5), name


@pytest.mark.parametrize('function', FUNCTIONS, ids=F.__all__)
def test_form_of_every_function(function):
    rng = np.random.default_rng(3)
    scores, target = rng.random((5, 9, 8)), rng.integers(0, 2, (5, 9, 8))
    target[3] = 0
    many = function(scores, target)
    assert many.shape == (5,) and many.dtype == float
    single = [function(torch.tensor(score), torch.tensor(mask)) for score, mask in zip(scores, target, strict=True)]
    assert all(type(value) is float for value in single)
    np.testing.assert_array_equal(many, single)
    np.testing.assert_array_equal(function(scores.tolist(), target.tolist()), many)
    labels = scores > 0.5
    np.testing.assert_array_equal(function(labels, target > 0), function(labels.astype(np.uint8), target))
    np.testing.assert_array_equal(function(labels, target.astype(bool)), function(labels.astype(float), target))
    assert np.isnan(function(scores, np.full_like(target, 7), ignore_index=7)).all()  # no valid pixel
    ignored = target.copy()
    ignored[:, :2] = 9
    with pytest.raises(UserError, match='has the values 0, 1, 9, expected 0, 1'):
        function(scores, ignored)
    if function not in (F.boundary_f1, F.iou_65):  # these are coarse: 1 or 0 for all of these images
        assert not np.array_equal(function(scores, ignored, ignore_index=9), many, equal_nan=True)
    with pytest.raises(UserError, match=r'same shape, \(H, W\) or \(N, H, W\), got \(5, 9, 8\) and \(9, 8\)'):
        function(scores, target[0])
    with pytest.raises(UserError, match=r'\(1, 5, 9, 8\)'):
        function(scores[None], target[None])
    for wrong in (scores * 3, scores * np.nan, labels * 255):
        with pytest.raises(UserError, match='0 to 1|between 0 and 1|labels 0 and 1'):
            function(wrong, target)


@pytest.mark.parametrize('function', [F.dice, F.iou, F.hausdorff_95, F.boundary_f1, F.mean_dice, F.iou_65])
def test_unknown_rule(function):
    with pytest.raises(UserError, match="empty='zero' is unknown; choose one of: one, skip"):
        function([[0]], [[0]], empty='zero')
