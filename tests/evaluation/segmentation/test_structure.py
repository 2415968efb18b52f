"""Scores of probability maps and distances of outlines against PySODMetrics and MONAI, on masks of every kind."""
import warnings

import numpy as np
import pytest
import torch
from segmentation_samples import cases, evaluate

from mmkcla.errors import UserError
from mmkcla.evaluation import (
    BinarySegMetric,
    distance_scores,
    e_measure,
    mean_absolute_error,
    s_measure,
    weighted_f_measure,
)
from mmkcla.evaluation.segmentation.structure import stretched

sod = pytest.importorskip('py_sod_metrics')
monai = pytest.importorskip('monai.metrics')


def pairs(number=300, seed=0):
    """Maps of probabilities with masks: empty, full, one pixel, circles; noise, good, binary and constant maps."""
    rng = np.random.default_rng(seed)
    for index in range(number):
        height, width = rng.integers(1, 48, 2)
        mask = np.zeros((height, width), bool)
        kind = index % 6
        if kind == 1:
            mask[:] = True
        elif kind == 2:
            mask[rng.integers(height), rng.integers(width)] = True
        elif kind >= 3:
            y, x = np.mgrid[:height, :width]
            mask = (y - rng.integers(height))**2 + (x - rng.integers(width))**2 < rng.integers(1, 400)
        scores = rng.random((height, width))
        if index % 4 == 1:
            scores = np.clip(0.7 * mask + 0.3 * scores, 0, 1)
        elif index % 4 == 2:
            scores = (scores > 0.5).astype(float)
        if index % 7 == 3:
            scores[:] = rng.random()
        yield scores, mask


def reference(scores, mask):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        found = [measure() for measure in (sod.MAE, sod.Smeasure, sod.Emeasure, sod.WeightedFmeasure)]
        for measure in found:
            measure.step(scores, mask, normalize=False)
    mae, s, e, f = (measure.get_results() for measure in found)
    return mae['mae'], s['sm'], e['em']['curve'], e['em']['adp'], f['wfm']


def test_equal_to_pysodmetrics():
    undefined = 0
    for scores, mask in pairs():
        mae, s, curve, adaptive, f = reference(scores, mask)
        assert mean_absolute_error(scores, mask) == pytest.approx(mae, abs=1e-12)
        # NaN where a centroid in the last row or column leaves a part without pixels: its weight is 0 here
        found = s_measure(scores, mask)
        assert found == pytest.approx(s, abs=1e-12) or np.isnan(s) and 0 <= found <= 1
        undefined += np.isnan(s)
        found, at_twice_the_mean = e_measure(scores, mask)
        np.testing.assert_allclose(found, curve, rtol=1e-12, atol=1e-12)
        assert at_twice_the_mean == pytest.approx(adaptive, rel=1e-12)
        assert weighted_f_measure(scores, mask) == pytest.approx(f, abs=1e-12)
    assert undefined < 30


def test_by_hand():
    mask = np.array([[True, False], [False, False]])
    assert mean_absolute_error(np.array([[0.5, 0.25], [0., 0.25]]), mask) == 0.25
    assert s_measure(mask.astype(float), mask) == pytest.approx(1, abs=1e-9) == weighted_f_measure(mask * 1., mask)
    curve, adaptive = e_measure(mask.astype(float), mask)
    assert adaptive == pytest.approx(4 / 3)  # 4 pixels of perfect alignment, over pixels - 1
    assert curve[0] == pytest.approx(4 / 3) and len(curve) == 256


@pytest.mark.parametrize('function', [mean_absolute_error, s_measure, e_measure, weighted_f_measure])
@pytest.mark.parametrize(('scores', 'text'), [
    (np.full((2, 2), 1.5), 'from 1.5 to 1.5'), (np.full((2, 2), np.nan), 'from nan to nan'),
    (np.zeros((2, 3)), 'must have the same shape'), (-np.ones((2, 2)), 'from -1 to -1')])
def test_what_is_refused(function, scores, text):
    with pytest.raises(UserError, match=text):
        function(scores, np.zeros((2, 2), bool))


def test_distances_equal_monai():
    compared = 0
    for scores, mask in pairs(300, seed=1):
        prediction = scores > 0.6
        found = distance_scores(prediction, mask)
        if not prediction.any() or not mask.any():
            expected = np.hypot(*mask.shape) if prediction.any() or mask.any() else 0
            assert set(found.values()) == {expected}
            continue
        ours, theirs = (torch.tensor(side)[None, None].float() for side in (prediction, mask))
        assert found['HD95'] == pytest.approx(float(monai.compute_hausdorff_distance(
            ours, theirs, include_background=True, percentile=95)), abs=1e-4)
        for name, symmetric in (('ASD', False), ('ASSD', True)):
            assert found[name] == pytest.approx(float(monai.compute_average_surface_distance(
                ours, theirs, include_background=True, symmetric=symmetric)), abs=1e-4)
        compared += 1
    assert compared > 150
    assert np.isnan(list(distance_scores(np.zeros((2, 2), bool), np.zeros((2, 2), bool), 'skip').values())).all()


def test_conventions_by_hand():
    """One pixel against two at distances 0 and 10: the directions are {0} and {0, 10}."""
    prediction, truth = np.zeros((2, 1, 11), bool)
    prediction[0, 0] = truth[0, 0] = truth[0, 10] = True
    assert distance_scores(prediction, truth) == pytest.approx(dict(
        HD95=9.5, HD95_pooled=9., ASD=0., ASSD=10 / 3, ASSD_halves=2.5))


def test_in_the_metric(tmp_path):
    samples = cases(4)
    options = dict(bootstrap=0, hd95=True, distances=True, structure=True, out_dir=str(tmp_path))
    metrics = evaluate(samples, **options)
    plain = evaluate(samples, bootstrap=0, hd95=True)
    assert {key: metrics[key] for key in plain} == plain
    assert list(metrics) == BinarySegMetric(**options).names
    maps = [(stretched(sample.seg_logits.data.diff(dim=0)[0].sigmoid().double().numpy()),
             sample.gt_sem_seg.data[0].numpy() == 1) for sample in samples]
    assert metrics['Smeasure_mean'] == pytest.approx(np.mean([s_measure(*pair) for pair in maps]), abs=1e-5)
    curve = np.mean([e_measure(*pair)[0] for pair in maps], axis=0)
    assert (metrics['Emeasure_mean'], metrics['maxEmeasure']) == pytest.approx((curve.mean(), curve.max()), abs=1e-3)
    header, first = (tmp_path / 'per_image.csv').read_text().splitlines()[:2]
    assert {'HD95', 'ASSD', 'Smeasure', 'wFmeasure'} <= set(header.split(',')) and first.count(',') == header.count(',')
