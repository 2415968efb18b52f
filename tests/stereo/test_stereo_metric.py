"""End-point error and bad pixels against NumPy; the picture."""
import numpy as np
import pytest
import torch
from PIL import Image

from mmkcla.errors import UserError
from mmkcla.stereo.metric import StereoMetric


def sample(prediction, truth, name='a', **more):
    return dict(name=name, pred_disparity=dict(data=torch.as_tensor(prediction)[None]),
                gt_disparity=dict(data=torch.as_tensor(truth)[None]), **more)


def maps(generator, size=(12, 17)):
    truth = generator.uniform(1, 120, size).astype(np.float32)
    prediction = (truth + generator.normal(0, 4, size)).astype(np.float32)
    truth[generator.random(size) < .3] = 0
    truth[0, :3] = np.nan, np.inf, -4
    return prediction, truth


@pytest.mark.parametrize('limit', [None, 60])
def test_against_numpy_pooled_over_pixels(limit):
    generator = np.random.default_rng(0)
    cases = [maps(generator), maps(generator, (30, 5))]
    metric = StereoMetric(max_disparity=limit)
    for prediction, truth in cases:
        metric.process(None, [sample(prediction, truth)])
    scores = metric.evaluate(2)
    prediction, truth = (np.concatenate([case[i].ravel() for case in cases]).astype(np.float64) for i in (0, 1))
    valid = np.isfinite(truth) & (truth > 0) & (truth < (limit or np.inf))
    error = np.abs(prediction - truth)[valid]
    assert scores == pytest.approx({
        'EPE': error.mean(), '1px': (error > 1).mean(), '3px': (error > 3).mean(),
        'D1': ((error > 3) & (error / truth[valid] > .05)).mean()}, rel=1e-9)
    assert scores['D1'] < scores['3px'] or limit == 60  # 5 % of 60 pixels are 3


def test_exactly_three_pixels_are_not_bad():
    metric = StereoMetric()
    metric.process(None, [sample([[13., 13.5, 10., 1003.5]], [[10., 10., 10., 1000.]])])
    assert metric.evaluate(1) == {'EPE': 2.5, '1px': .75, '3px': .5, 'D1': .25}


def test_maps_without_valid_pixels_are_skipped_and_logged(monkeypatch):
    said = []
    monkeypatch.setattr('mmkcla.stereo.metric.print_log', lambda *args: said.append(args))
    metric = StereoMetric(max_disparity=50)
    metric.process(None, [sample([[1.]], [[60.]], name='far'), sample([[1.]], [[3.]])])
    assert metric.evaluate(2)['EPE'] == 2
    assert 'skipped 1 maps without a pixel with a true disparity above 0 and below 50: far' in str(said)
    metric.process(None, [sample([[1.]], [[60.]], name='far')])
    with pytest.raises(UserError, match='none of the 1 maps has a pixel with a true disparity above 0 and below 50'):
        metric.evaluate(1)


def test_what_is_not_finite_is_infinitely_wrong():
    metric = StereoMetric()
    metric.process(None, [sample([[np.nan, 2.]], [[2., 2.]])])
    assert metric.evaluate(1) == {'EPE': np.inf, '1px': .5, '3px': .5, 'D1': .5}


def test_pictures(tmp_path):
    generator = np.random.default_rng(0)
    prediction, truth = maps(generator, (40, 60))
    Image.fromarray(generator.integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(tmp_path / 'left.png')
    metric = StereoMetric(out_dir=str(tmp_path / 'out'), pictures=2)
    for name in ('A/left/1', 'A/left/2', 'A/left/3'):
        metric.process(None, [sample(prediction, truth, name=name, left_path=str(tmp_path / 'left.png'))])
    metric.process(None, [sample(prediction, np.zeros_like(truth), name='none')])
    metric.evaluate(4)
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == ['A_left_1.png', 'A_left_2.png']
    picture = np.asarray(Image.open(tmp_path / 'out' / 'A_left_1.png').convert('RGB'))
    assert picture.shape[1] > 1000 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 500


def test_picture_without_left_view_or_truth(tmp_path):
    metric = StereoMetric(out_dir=str(tmp_path))
    metric.process(None, [sample([[1., 2.]], [[0., 0.]], left_path='absent.png')])
    assert (tmp_path / 'a.png').is_file()


@pytest.mark.parametrize('options, message', [
    (dict(max_disparity=0), 'max_disparity=0 must be above 0'), (dict(pictures=-1), 'pictures=-1 must not be negative'),
    (dict(out_dir=__file__), 'out_dir=.* is a file')])
def test_bad_arguments(options, message):
    with pytest.raises(UserError, match=message):
        StereoMetric(**options)


def test_bad_samples():
    with pytest.raises(UserError, match='the pair a has no ground-truth disparity; the pipeline needs'):
        StereoMetric().process(None, [dict(name='a', pred_disparity=dict(data=torch.zeros(1, 2, 2)))])
    with pytest.raises(UserError, match=r'the prediction for a has the shape \(2, 2\), the true disparity \(3, 2\)'):
        StereoMetric().process(None, [sample(np.zeros((2, 2)), np.ones((3, 2)))])
