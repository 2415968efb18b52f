"""The metric as mmengine runs it: what mmseg's segmentors hand over, sizes, reports, several processes."""
import csv
import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import MMLogger
from mmengine.registry import METRICS
from mmengine.structures import PixelData
from mmseg.models.segmentors import EncoderDecoder, SegTTAModel
from mmseg.structures import SegDataSample
from PIL import Image
from segmentation_samples import cases, circle, evaluate, in_process, predicted, sample

from mmkcla.errors import UserError
from mmkcla.evaluation import BinarySegMetric, binary_scores, boundary_scores
from mmkcla.evaluation.segmentation.resize import scores_at


@pytest.fixture
def log(monkeypatch):
    """The lines logged meanwhile."""
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = MMLogger.get_current_instance()
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


# -- what the segmentor hands over -----------------------------------------------------------------------------------

@pytest.mark.parametrize('channels', [1, 2])
def test_equals_the_functional_form(channels):
    samples = cases(channels=channels)
    got = evaluate(samples, bootstrap=50)
    single = [binary_scores(item.pred_sem_seg.data[0].long(), item.gt_sem_seg.data[0]) for item in samples]
    for key in ('IoU', 'DSC', 'mIoU', 'mDice', 'Acc', 'Sens', 'Spec', 'Prec'):
        assert got[f'{key}_mean'] == pytest.approx(np.mean([scores[key] for scores in single]))
    tp, wrong = sum(s['TP'] for s in single), sum(s['FP'] + s['FN'] for s in single)
    assert got['IoU_pooled'] == pytest.approx(tp / (tp + wrong)) and 0.3 < got['IoU_pooled'] < 0.9
    assert got['DSC_mean_lo'] < got['DSC_mean'] < got['DSC_mean_hi']
    assert got.keys() == {f'{key}_{how}' for key in ('IoU', 'DSC', 'mIoU', 'mDice', 'Acc', 'Sens', 'Spec', 'Prec')
                          for how in ('pooled', 'mean')} | {'TJ65_mean', 'failed_share', 'empty_truth'} | {
        f'{key}_{end}' for key in ('IoU_pooled', 'DSC_pooled', 'IoU_mean', 'DSC_mean', 'TJ65_mean')
        for end in ('lo', 'hi')}


def test_it_is_registered_and_takes_a_prefix():
    metric = METRICS.build(dict(type='mmkcla.BinarySegMetric', prefix='test', bootstrap=0))
    metric.process({}, [item.to_dict() for item in cases(2)])
    assert set(map(type, metric.evaluate(2).values())) == {float, int} and metric.prefix == 'test'


@pytest.mark.parametrize('channels', [1, 2])
@pytest.mark.parametrize('threshold', [0.2, 0.5, 0.83])
def test_threshold_is_on_the_foreground_probability(channels, threshold):
    samples = cases(3, channels)
    logits = [item.seg_logits.data for item in samples]
    maps = [scores.softmax(0)[1] if channels == 2 else scores[0] for scores in logits]
    want = [binary_scores(p, item.gt_sem_seg.data[0], threshold)['IoU'] for p, item in zip(maps, samples, strict=True)]
    assert evaluate(samples, threshold=threshold)['IoU_mean'] == pytest.approx(np.mean(want), abs=1e-9)


def test_head_with_another_threshold_is_reported(log):
    """mmseg's one-channel heads cut at 0.3 unless told otherwise."""
    samples = cases(3, 1, threshold=0.3)
    assert evaluate(samples) == evaluate(cases(3, 1, threshold=0.5))
    warned = [line for line in log if 'the labels of the head use a threshold between' in line]
    assert len(warned) == 1 and 'set decode_head.threshold=0.5' in warned[0]


def test_near_ties_are_the_argmax():
    logits = torch.zeros(1, 2, 4, 4)
    logits[0, 1] = torch.linspace(-2e-8, 2e-8, 16).view(4, 4)
    truth = np.arange(16).reshape(4, 4) >= 8
    assert evaluate(predicted(logits, [sample(truth, network=(4, 4))]))['IoU_mean'] == 1


def test_ignored_pixels():
    item, = cases(1)
    whole = evaluate([item])
    truth = item.gt_sem_seg.data[0].clone()
    truth[:, :20] = 255
    item.gt_sem_seg = PixelData(data=truth[None])
    part = evaluate([item])
    assert part['IoU_mean'] == binary_scores(item.pred_sem_seg.data[0].long(), truth)['IoU'] != whole['IoU_mean']
    other = truth.clone()
    other[other == 255] = 9
    item.gt_sem_seg = PixelData(data=other[None])
    assert evaluate([item], ignore_index=9) == part


def test_optional_scores():
    samples = cases(3)
    got = evaluate(samples, hd95=True, boundary_f1=True, tolerance=1.5, polyp_protocol=True, bootstrap=0)
    want = [boundary_scores(item.pred_sem_seg.data[0].numpy() == 1, item.gt_sem_seg.data[0].numpy() == 1, 1.5)
            for item in samples]
    assert got['HD95_mean'] == pytest.approx(np.mean([scores['HD95'] for scores in want]))
    assert got['BF1_mean'] == pytest.approx(np.mean([scores['BF1'] for scores in want]))
    assert 0 < got['mDice_256'] < got['maxDice_256'] <= 1 and 0 < got['mIoU_256'] < got['maxIoU_256'] <= 1
    assert not any(key.endswith(('_lo', '_hi')) for key in got)


# -- sizes -----------------------------------------------------------------------------------------------------------

def ragged(shape, channels, seed=0):
    """Truth of ``shape``, and logits at 32×32 whose sign changes often."""
    truth = circle(shape, (shape[0] // 2, shape[1] // 2), shape[1] // 4)
    logits = torch.randn(1, channels, 32, 32, generator=torch.Generator().manual_seed(seed)) * 4
    logits[0, -1] += torch.from_numpy(circle((32, 32), (16, 16), 9)) * 8. - 4
    return truth, logits


@pytest.mark.parametrize('channels', [1, 2])
@pytest.mark.parametrize('shape', [(96, 128), (37, 90), (33, 34), (32, 41)])
def test_network_size_is_what_the_network_gave(channels, shape, log):
    truth, logits = ragged(shape, channels)
    item, = predicted(logits, [sample(truth)])
    small = F.interpolate(torch.from_numpy(truth)[None, None].float(), size=(32, 32), mode='nearest-exact')[0, 0].long()
    labels = logits[0].argmax(0) if channels == 2 else (logits[0, 0] > 0).long()
    got = evaluate([item], size='network')
    assert got['IoU_mean'] == binary_scores(labels, small)['IoU'] != evaluate([item])['IoU_mean']
    assert not any('approximation' in line for line in log)
    assert evaluate([item], size='network', network_size=[32, 32]) == got
    item.gt_sem_seg = PixelData(data=small[None])  # a mask that was resized with the image
    assert evaluate([item], size='network') == got
    text = rf'the prediction for a.jpg has {shape[1]}×{shape[0]} pixels, its mask 32×32; load the mask after the r'
    with pytest.raises(UserError, match=text):
        evaluate([item])


def test_network_size_with_aligned_corners_and_otherwise(log):
    truth, logits = ragged((50, 70), 2)
    host = SimpleNamespace(align_corners=True)
    item, = EncoderDecoder.postprocess_result(host, logits, [sample(truth)])
    small = F.interpolate(torch.from_numpy(truth)[None, None].float(), size=(32, 32), mode='nearest-exact')[0, 0].long()
    assert evaluate([item], size='network')['IoU_mean'] == binary_scores(logits[0].argmax(0), small)['IoU']
    assert not any('approximation' in line for line in log)
    evaluate([item], size='network', network_size=(24, 48))  # not what it was resized from
    truth, logits = ragged((20, 70), 2)
    evaluate(predicted(logits, [sample(truth)]), size='network')  # fewer rows than the network had
    assert sum('is not an exact resize of' in line and 'approximation' in line for line in log) == 2


def test_network_size_of_a_certain_network():
    """Where the probabilities are 1 to float32 the logits are lost; a few pixels may turn."""
    truth, logits = ragged((75, 61), 1)
    item, = predicted(logits * 2, [sample(truth)])
    assert (item.seg_logits.data == 1).float().mean() > 0.01
    small = F.interpolate(torch.from_numpy(truth)[None, None].float(), size=(32, 32), mode='nearest-exact')[0, 0].long()
    got, want = (binary_scores((scores > 0.5).long(), small)['IoU'] for scores in (
        scores_at(item.seg_logits.data[0], (32, 32))[0], logits[0, 0].sigmoid()))
    smooth = F.interpolate(item.seg_logits.data[None], size=(32, 32), mode='bilinear')[0, 0]
    assert abs(got - want) < abs(binary_scores(smooth, small)['IoU'] - want) / 5 < 0.02
    assert evaluate([item], size='network')['IoU_mean'] == got


# -- masks and predictions that are refused --------------------------------------------------------------------------

@pytest.mark.parametrize(('values', 'text'), [
    ((0, 1, 7), r'the mask a.png has the values 0, 1, 7, expected 0, 1 and 255 \(ignored\); load'),
    ((0, 128, 255), r'the mask a.png has the values 0, 128, 255, expected'),
    ((0, 255), r'the mask a.png has the values 0 and 255 and no 1: it looks like a 0/255 mask, and its foreground '
               r'would be ignored; load it with mmkcla.LoadBinaryMask\(threshold=127\)'),
    ((255, ), r'the mask a.png has the values 255 and no 1')])
@pytest.mark.parametrize('size', ['original', 'network'])
def test_mask_values(values, text, size):
    truth = np.resize(np.array(values), (6, 8))
    with pytest.raises(UserError, match=text) as caught:
        evaluate(predicted(torch.zeros(1, 2, 4, 4), [sample(truth, network=(4, 4))]), size=size)
    assert '\n' not in str(caught.value)


def test_samples_that_are_refused(log):
    truth = circle((6, 8), (3, 3), 2)
    bare = predicted(torch.zeros(1, 2, 4, 4), [SegDataSample(metainfo=dict(img_path='b.jpg', ori_shape=(6, 8)))])
    with pytest.raises(UserError, match=r'the image b.jpg has no mask; the pipeline needs mmkcla.LoadBinaryM'):
        evaluate(bare)
    with pytest.raises(UserError, match=r'one or two channels, the prediction for a.jpg has 3; set num_classes=2'):
        evaluate(predicted(torch.zeros(1, 3, 4, 4), [sample(truth)]))
    with pytest.raises(UserError, match=r'needs two classes, background and foreground; the data set has 3: a, b, c'):
        evaluate(cases(1), meta=dict(classes=('a', 'b', 'c')))
    raw, = cases(1, 1)
    raw.seg_logits = PixelData(data=torch.full((1, *truth.shape), -3.))
    with pytest.raises(UserError, match=r'from a head with one channel .* for 000.jpg ranges from -3 to -3'):
        evaluate([raw])
    empty = sample(truth)
    with pytest.raises(UserError, match=r'the sample of a.jpg has neither seg_logits nor pred_sem_seg'):
        evaluate([empty])
    with pytest.raises(UserError, match=r'no image was evaluated; is the data set empty'):
        BinarySegMetric().evaluate(0)
    broken, = predicted(torch.full((1, 2, 4, 4), math.nan), [sample(truth)])
    assert evaluate([broken], bootstrap=0)['Sens_mean'] == 0
    assert any('a.jpg has non-finite scores' in line for line in log)


@pytest.mark.parametrize(('options', 'text'), [
    (dict(threshold=127), r'threshold=127 must be a probability between 0 and 1'),
    (dict(size='full'), r"size='full' is unknown; choose one of: original, network"),
    (dict(network_size=(256, 256)), r'network_size=\(256, 256\) must be \(height, width\) and needs size=.network.'),
    (dict(size='network', polyp_protocol=True), r'polyp_protocol=True is defined at the original size'),
    (dict(ignore_index=0), r'ignore_index=0 is one of the two classes'),
    (dict(tolerance=-1), r'tolerance=-1, bootstrap=1000 and worst=20 must not be negative'),
    (dict(empty=0), r'empty=0 is unknown; choose one of: one, skip'),
    (dict(out_dir=__file__), r'out_dir=.*.py is a file')])
def test_arguments(options, text):
    with pytest.raises(UserError, match=text) as caught:
        BinarySegMetric(**options)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize('channels', [1, 2])
def test_merged_views(channels, log):
    """mmseg's SegTTAModel merges labels and leaves the scores of the last view in the sample."""
    views = [cases(2, channels, seed=seed) for seed in (0, 1)]
    module = SimpleNamespace(out_channels=channels, decode_head=SimpleNamespace(threshold=0.5))
    merged = SegTTAModel.merge_preds(SimpleNamespace(module=module), list(zip(*views, strict=True)))
    if channels == 1:  # the sigmoid of a probability is above 0.5: all foreground
        assert all(item.pred_sem_seg.data.all() for item in merged)
        with pytest.raises(UserError, match=r'000.jpg: no sensible threshold turns seg_logits into pred_sem_seg'):
            evaluate(merged)
        # by a model that is not sure of anything no score is near 0: the last view is known by its flip
        pale, = predicted(torch.rand(1, 1, 32, 32) - 0.5, [sample(circle((40, 40), (20, 20), 9), flip=True,
                                                                  flip_direction='horizontal')], threshold=0.3)
        with pytest.raises(UserError, match=r'a.jpg: no sensible threshold'):
            evaluate([pale])
        return
    want = np.mean([binary_scores(item.pred_sem_seg.data[0], item.gt_sem_seg.data[0])['IoU'] for item in merged])
    assert evaluate(merged)['IoU_mean'] == pytest.approx(want)
    assert sum('the labels are evaluated instead' in line for line in log) == 1
    with pytest.raises(UserError, match=r'threshold=0.4 needs the scores of 000.jpg, but pred_sem_seg does not follow'):
        evaluate(merged, threshold=0.4)


# -- the report ------------------------------------------------------------------------------------------------------

def test_report(tmp_path, log):
    (tmp_path / 'images').mkdir()
    samples = cases(5, folder=f'{tmp_path}/images/')
    samples += predicted(torch.zeros(1, 2, 4, 4), [sample(np.zeros((6, 8)), f'{tmp_path}/images/empty.jpg')])
    for item in samples[:-1]:
        height, width = item.ori_shape
        Image.fromarray(np.full((height, width, 3), (200, 30, 90), np.uint8)).save(item.img_path)
    out = tmp_path / 'out'
    (out / 'worst').mkdir(parents=True)
    for name in ('07_old.png', 'mine.png'):
        (out / 'worst' / name).touch()
    got = evaluate(samples, out_dir=str(out), worst=3, hd95=True, polyp_protocol=True)

    rows = list(csv.DictReader((out / 'per_image.csv').open(encoding='utf-8')))
    assert list(rows[0]) == ['file', 'IoU', 'DSC', 'mIoU', 'mDice', 'Acc', 'Sens', 'Spec', 'Prec', 'TP', 'FP', 'FN',
                             'TN', 'ignored', 'height', 'width', 'HD95', 'Dice_256', 'IoU_256']
    assert [row['file'] for row in rows] == [f'{n:03d}.jpg' for n in range(5)] + ['empty.jpg']
    for row, item in zip(rows, samples, strict=True):
        want = binary_scores(item.pred_sem_seg.data[0].long(), item.gt_sem_seg.data[0])
        assert [int(row[key]) for key in ('TP', 'FP', 'FN', 'TN')] == [want[key] for key in ('TP', 'FP', 'FN', 'TN')]
        assert (int(row['height']), int(row['width'])) == item.ori_shape and row['ignored'] == '0'
        assert float(row['DSC']) == pytest.approx(want['DSC'], rel=1e-5)
    assert rows[-1]['Sens'] == '' and rows[-1]['IoU'] == '1'
    assert np.mean([float(row['IoU']) for row in rows]) == pytest.approx(got['IoU_mean'], abs=1e-5)

    worst = sorted(rows, key=lambda row: float(row['IoU']))[:3]
    pictures = [f'{n:02d}_{row["file"][:-4]}.png' for n, row in enumerate(worst, 1)]
    assert {path.name for path in out.rglob('*')} == {'per_image.csv', 'worst', 'mine.png', *pictures}
    listed = next(line for line in log if 'the 3 worst images by IoU' in line)
    assert [line.split()[1] for line in listed.splitlines()[1:]] == [row['file'] for row in worst]
    # image | truth | prediction, enlarged to be legible
    item = next(item for item in samples if item.img_path.endswith(worst[0]['file']))
    height, width = item.ori_shape
    factor = math.ceil(256 / max(height, width))
    canvas = np.asarray(Image.open(out / 'worst' / pictures[0]))
    top = canvas.shape[0] - height * factor
    panels = [canvas[top::factor, x:x + width * factor:factor] for x in (0, width * factor + 4, 2 * width * factor + 8)]
    assert abs(panels[0].astype(int) - (200, 30, 90)).max() < 6
    truth, prediction = item.gt_sem_seg.data[0].numpy() == 1, item.pred_sem_seg.data[0].numpy() == 1
    assert np.array_equal(panels[1], truth[..., None] * np.full(3, 255))
    for mask, colour in ((truth & prediction, (255, 255, 255)), (prediction & ~truth, (230, 159, 0)),
                         (truth & ~prediction, (0, 114, 178)), (~truth & ~prediction, (0, 0, 0))):
        assert (panels[2][mask] == colour).all()


def test_report_without_the_images(tmp_path, log):
    samples = cases(3, shape=(700, 900), network=(8, 8))
    got = evaluate(samples, out_dir=str(tmp_path / 'out'), worst=2)
    pictures = sorted((tmp_path / 'out' / 'worst').iterdir())
    assert len(pictures) == 2 and Image.open(pictures[0]).size[0] == 3 * 512 + 8
    assert any('cannot read 2 of the worst images; their panels are grey: 00' in line for line in log)
    (tmp_path / 'late').mkdir()
    metric = BinarySegMetric(out_dir=str(tmp_path / 'late' / 'out'))
    (tmp_path / 'late').rmdir()
    (tmp_path / 'late').touch()
    metric.process({}, [item.to_dict() for item in samples])
    assert metric.evaluate(3) == got
    assert any(line.startswith('cannot write the report to ') for line in log)


def test_only_the_worst_keep_maps(tmp_path):
    metric = BinarySegMetric(out_dir=str(tmp_path), worst=2)
    metric.process({}, [item.to_dict() for item in cases(6)])
    kept = [record['IoU'] for record in metric.results if 'codes' in record]
    assert sorted(kept) == sorted(record['IoU'] for record in metric.results)[:2]
    assert not any(isinstance(value, (torch.Tensor, np.ndarray)) for record in metric.results
                   for key, value in record.items() if key != 'codes')
    metric.evaluate(6)
    assert not metric.results and not metric.report.worst


# -- several processes -----------------------------------------------------------------------------------------------

def test_two_processes_match_one(tmp_path):
    import socket
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    number = 7  # odd: the second process sees the first image again
    torch.multiprocessing.spawn(in_process, (2, port, str(tmp_path), number), nprocs=2)
    alone = evaluate(cases(number), out_dir=str(tmp_path / 'one'), worst=3, hd95=True, polyp_protocol=True)
    assert torch.load(tmp_path / '0.pt') == torch.load(tmp_path / '1.pt') == alone
    for name in ('per_image.csv', *(f'worst/{path.name}' for path in (tmp_path / 'one' / 'worst').iterdir())):
        assert (tmp_path / 'one' / name).read_bytes() == (tmp_path / 'two' / name).read_bytes()


def test_duplicate_images_count_once(log):
    samples = cases(3)
    assert evaluate([*samples, samples[0]]) == evaluate(samples)
    assert any('1 duplicate samples' in line for line in log)
    nameless = [SegDataSample(gt_sem_seg=item.gt_sem_seg, pred_sem_seg=item.pred_sem_seg,
                              seg_logits=item.seg_logits) for item in (samples[0], samples[0], samples[1])]
    scores = [binary_scores(item.pred_sem_seg.data[0].long(), item.gt_sem_seg.data[0])['IoU'] for item in nameless]
    assert evaluate(nameless)['IoU_mean'] == pytest.approx(np.mean(scores))
