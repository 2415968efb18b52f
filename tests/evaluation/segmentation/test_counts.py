"""Scores of two classes against scikit-learn and against the definitions written out, pixel by pixel."""
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn import metrics as sk

from mmkcla.errors import UserError
from mmkcla.evaluation import binary_scores, boundary_scores, scores_from_counts
from mmkcla.evaluation.segmentation.bootstrap import INTERVALS, bootstrap_interval, score_intervals
from mmkcla.evaluation.segmentation.counts import summarise
from mmkcla.evaluation.segmentation.polyp_protocol import protocol_scores, threshold_curves
from mmkcla.evaluation.segmentation.surface import outline


def blobs(rng, shape, share=0.5):
    """A mask of smooth shapes that covers ``share`` of the image."""
    from scipy.ndimage import gaussian_filter
    field = gaussian_filter(rng.standard_normal(shape), 2.5)
    return field > np.quantile(field, 1 - share)


# -- scores of one image and of a set --------------------------------------------------------------------------------

@pytest.mark.parametrize('share_truth', [0.02, 0.3, 0.97])
@pytest.mark.parametrize('share_prediction', [0.05, 0.5, 0.9])
@pytest.mark.parametrize('ignored', [0.0, 0.2])
def test_scores_are_scikit_learns(share_truth, share_prediction, ignored):
    rng = np.random.default_rng(3)
    truth = (rng.random((17, 23)) < share_truth).astype(np.uint8)
    prediction = rng.random((17, 23)) < share_prediction
    truth[rng.random(truth.shape) < ignored] = 255
    got = binary_scores(prediction, truth)
    y, p = truth[truth != 255], prediction[truth != 255].astype(int)
    assert got['IoU'] == pytest.approx(sk.jaccard_score(y, p), abs=1e-12)
    assert got['DSC'] == pytest.approx(sk.f1_score(y, p), abs=1e-12)
    assert got['mIoU'] == pytest.approx(sk.jaccard_score(y, p, average='macro'), abs=1e-12)
    assert got['mDice'] == pytest.approx(sk.f1_score(y, p, average='macro'), abs=1e-12)
    assert got['Acc'] == pytest.approx(sk.accuracy_score(y, p), abs=1e-12)
    assert got['Sens'] == pytest.approx(sk.recall_score(y, p), abs=1e-12)
    assert got['Spec'] == pytest.approx(sk.recall_score(y, p, pos_label=0), abs=1e-12)
    assert [got[key] for key in ('TN', 'FP', 'FN', 'TP')] == sk.confusion_matrix(y, p).ravel().tolist()


def test_both_aggregations():
    rng = np.random.default_rng(0)
    pairs = [(rng.random((9, 11)) < 0.4, rng.random((9, 11)) < share) for share in (0.1, 0.3, 0.6, 0.9)]
    counts = np.array([[s[key] for key in ('TP', 'FP', 'FN', 'TN')] for s in (binary_scores(*pair) for pair in pairs)])
    got = summarise(counts)
    predictions, truths = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    jaccards = np.array([sk.jaccard_score(t.ravel(), p.ravel()) for p, t in pairs])
    assert got['IoU_pooled'] == pytest.approx(sk.jaccard_score(truths, predictions))
    assert got['mIoU_pooled'] == pytest.approx(sk.jaccard_score(truths, predictions, average='macro'))
    assert got['Sens_pooled'] == pytest.approx(sk.recall_score(truths, predictions))
    assert got['DSC_mean'] == pytest.approx(np.mean([sk.f1_score(t.ravel(), p.ravel()) for p, t in pairs]))
    assert got['IoU_mean'] == pytest.approx(jaccards.mean())
    # pooled numbers obey IoU = D/(2 - D), means do not: this tells which of the two a paper reports
    identity = got['DSC_pooled'] / (2 - got['DSC_pooled'])
    assert got['IoU_pooled'] == pytest.approx(identity, abs=1e-12)
    assert abs(got['IoU_mean'] - got['DSC_mean'] / (2 - got['DSC_mean'])) > 1e-3


def test_thresholded_jaccard_and_failed_share():
    counts = [[65, 35, 0, 0], [64, 36, 0, 0], [10, 0, 0, 90], [0, 5, 5, 90]]
    got = summarise(counts)
    assert got['TJ65_mean'] == pytest.approx((0.65 + 0 + 1 + 0) / 4) and got['failed_share'] == 0.5
    assert got['IoU_mean'] == pytest.approx((0.65 + 0.64 + 1 + 0) / 4)


EMPTY, FULL, SOME = np.zeros((4, 5), bool), np.ones((4, 5), bool), np.arange(20).reshape(4, 5) > 12


def test_empty_masks():
    one, skip = (binary_scores(EMPTY, EMPTY, empty=rule) for rule in ('one', 'skip'))
    assert one['IoU'] == one['DSC'] == one['mIoU'] == one['Acc'] == one['Spec'] == 1 and math.isnan(one['Sens'])
    assert all(math.isnan(skip[key]) for key in ('IoU', 'DSC', 'mIoU', 'mDice', 'Sens')) and skip['Acc'] == 1
    for rule in ('one', 'skip'):
        alarm, missed = binary_scores(SOME, EMPTY, empty=rule), binary_scores(EMPTY, SOME, empty=rule)
        assert alarm['IoU'] == alarm['DSC'] == 0 and math.isnan(alarm['Sens'])
        assert missed['IoU'] == missed['DSC'] == missed['Sens'] == 0
    assert binary_scores(FULL, FULL)['mIoU'] == 1 and math.isnan(binary_scores(FULL, FULL)['Spec'])
    assert all(math.isnan(value) for value in scores_from_counts([0, 0, 0, 0]).values())  # all is ignored

    counts = [[0, 0, 0, 20], [0, 7, 0, 13], [7, 0, 0, 13]]
    one, skip = summarise(counts), summarise(counts, 'skip')
    assert one['IoU_mean'] == pytest.approx(2 / 3) and skip['IoU_mean'] == pytest.approx(1 / 2)
    assert one['Sens_mean'] == 1 and one['empty_truth'] == 2  # the empty ones are left out
    assert one['failed_share'] == pytest.approx(1 / 3) and skip['failed_share'] == pytest.approx(1 / 2)
    assert one['IoU_pooled'] == skip['IoU_pooled'] == 0.5


def test_functional_api_takes_probabilities_and_tensors():
    probability = torch.tensor([[0.2, 0.5, 0.51, 0.9]])
    truth = torch.tensor([[0, 1, 1, 1]])
    assert binary_scores(probability, truth)['TP'] == 2
    assert binary_scores(probability, truth, threshold=0.1)['FP'] == 1
    assert binary_scores([[1, 1], [0, 0]], [[1, 0], [0, 0]])['IoU'] == 0.5
    for arguments, text in [
            ((probability, truth.T), r'the same shape \(H, W\), got \(1, 4\) and \(4, 1\)'),
            ((probability * 3, truth), r'probabilities from 0 to 1, got 0.6 to 2.7; pass logits.sigmoid\(\)'),
            ((truth * 255, truth), r'labels 0 and 1 .*, got the values 0, 255'),
            ((truth, truth * 3), r'the mask truth has the values 0, 3, expected 0, 1 and 255 \(ignored\)'),
            ((truth, truth * 255), r'has the values 0 and 255 and no 1: it looks like a 0/255 mask'),
            ((truth, truth, 0.5, 255, 'zero'), r"empty='zero' is unknown; choose one of: one, skip")]:
        with pytest.raises(UserError, match=text) as caught:
            binary_scores(*arguments)
        assert '\n' not in str(caught.value)


# -- the polyp papers' protocol --------------------------------------------------------------------------------------

def written_out(score_map, truth):
    """PraNet's eval/main.m and Fmeasure_calu.m, one pixel and one threshold after another."""
    low, high = score_map.min(), score_map.max()
    saved = [round(255 * float((value - low) / (high - low + 1e-8))) for value in score_map.ravel()]
    dice, iou = [], []
    for threshold in range(256):
        tp = fp = fn = 0
        for level, true in zip(saved, truth.ravel(), strict=True):
            tp += level >= threshold and bool(true)
            fp += level >= threshold and not true
            fn += level < threshold and bool(true)
        dice.append(2 * tp / (2 * tp + fp + fn) if tp else 0.0)
        iou.append(tp / (tp + fp + fn) if tp else 0.0)
    return dice, iou


def test_256_thresholds():
    rng = np.random.default_rng(1)
    maps = [rng.random((8, 9)).astype(np.float32) * scale for scale in (1.0, 0.3, 0.9)]
    truths = [rng.random((8, 9)) < 0.4 for _ in range(2)] + [np.zeros((8, 9), bool)]
    got = [threshold_curves(torch.from_numpy(m), torch.from_numpy(t)) for m, t in zip(maps, truths, strict=True)]
    want = [written_out(m, t) for m, t in zip(maps, truths, strict=True)]
    assert np.array(got) == pytest.approx(np.array(want), abs=1e-12)
    scores = protocol_scores(*np.stack(got, axis=1))
    dice, iou = (np.mean([curves[i] for curves in want], axis=0) for i in (0, 1))
    assert scores == pytest.approx({'mDice_256': dice.mean(), 'mIoU_256': iou.mean(), 'maxDice_256': dice.max(),
                                    'maxIoU_256': iou.max()})
    truth, valid = torch.from_numpy(truths[0]), torch.from_numpy(rng.random((8, 9)) < 0.7)
    part = threshold_curves(torch.from_numpy(maps[0]), truth, valid)
    kept = valid.numpy()
    assert part[0][0] == pytest.approx(2 * (truths[0] & kept).sum() / ((truths[0] & kept).sum() + kept.sum()))


# -- outlines --------------------------------------------------------------------------------------------------------

def outline_pixels(mask):
    """Coordinates, by looking at the four neighbours of each pixel."""
    height, width = mask.shape
    inside = lambda y, x: 0 <= y < height and 0 <= x < width and mask[y, x]  # noqa: E731
    return np.array([(y, x) for y, x in np.argwhere(mask)
                     if not all(inside(y + dy, x + dx) for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)))])


@pytest.mark.parametrize(('shape', 'shares'), [
    ((20, 31), (0.3, 0.4)), ((33, 16), (0.05, 0.6)), ((24, 24), (0.01, 0.01)), ((12, 40), (1.0, 0.2))])
def test_hd95_and_boundary_f1_by_all_pairs(shape, shares):
    rng = np.random.default_rng(sum(shape))
    for _ in range(3):
        prediction, truth = (blobs(rng, shape, share) if share < 1 else np.ones(shape, bool) for share in shares)
        edges = [outline_pixels(mask) for mask in (prediction, truth)]
        assert np.array_equal(np.argwhere(outline(truth)), edges[1])
        pairs = cdist(*edges)
        there, back = pairs.min(1), pairs.min(0)
        for tolerance in (0, 1, 2, 3.5):
            got = boundary_scores(prediction, truth, tolerance)
            precision, recall = (there <= tolerance).mean(), (back <= tolerance).mean()
            f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
            assert got['BF1'] == pytest.approx(f1, abs=1e-9)
            assert got['HD95'] == pytest.approx(max(np.percentile(there, 95), np.percentile(back, 95)), abs=1e-4)


def test_outlines_of_empty_masks():
    assert boundary_scores(EMPTY, EMPTY) == dict(HD95=0.0, BF1=1.0)
    assert all(math.isnan(value) for value in boundary_scores(EMPTY, EMPTY, empty='skip').values())
    for pair in ((EMPTY, SOME), (SOME, EMPTY)):
        assert boundary_scores(*pair) == dict(HD95=math.hypot(4, 5), BF1=0.0)
    assert boundary_scores(SOME, SOME) == dict(HD95=0.0, BF1=1.0)


# -- bootstrap -------------------------------------------------------------------------------------------------------

def test_bootstrap_is_the_plain_loop():
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 50, (12, 4))
    counts[3] = 0, 0, 0, 9
    got = score_intervals(counts, 'skip', repeats=80, seed=7)
    assert got == score_intervals(counts, 'skip', repeats=80, seed=7)
    assert got != score_intervals(counts, 'skip', repeats=80, seed=8)
    draws = np.random.default_rng(7).integers(12, size=(80, 12))
    for key in INTERVALS:
        low, high = np.percentile([summarise(counts[draw], 'skip')[key] for draw in draws], [2.5, 97.5])
        assert (got[f'{key}_lo'], got[f'{key}_hi']) == pytest.approx((low, high))
        assert low <= summarise(counts, 'skip')[key] <= high
    single = score_intervals(counts[:1], repeats=10)
    assert single['DSC_mean_lo'] == single['DSC_mean_hi'] == summarise(counts[:1])['DSC_mean']
    nothing = score_intervals(counts[3:4], 'skip', repeats=10)
    assert math.isnan(nothing['DSC_mean_lo']) and math.isnan(nothing['DSC_mean_hi'])


def test_bootstrap_covers():
    """95 % intervals of a mean hold the true mean about 95 times in 100 (less a little: n is small)."""
    rng = np.random.default_rng(11)
    hits = 0
    for trial in range(300):
        sample = rng.beta(8, 2, 60)
        low, high = bootstrap_interval(lambda index, values=sample: values[index].mean(1, keepdims=True), 60,
                                       repeats=400, seed=trial)[:, 0]
        hits += low <= 0.8 <= high
    assert 0.90 <= hits / 300 <= 0.98


def test_bootstrap_in_chunks(monkeypatch):
    counts = np.random.default_rng(2).integers(0, 50, (9, 4))
    whole = score_intervals(counts, repeats=50)
    monkeypatch.setattr('mmkcla.evaluation.segmentation.bootstrap._CHUNK', 100)
    assert score_intervals(counts, repeats=50) == pytest.approx(whole)
