"""The torchvision stand-in for mmcv's compiled operators, against references written here in plain Python."""
import doctest
import importlib
import importlib.util
import inspect
import logging
import math
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest
import torch

from mmkcla.errors import UserError
from mmkcla.ops import install, torchvision_ext

mmcv = pytest.importorskip('mmcv')


@pytest.fixture(scope='module')
def ops():
    if not install():
        pytest.skip('mmcv has compiled operators, which win')
    return importlib.import_module('mmcv.ops')


# --- NMS ---

def exact_iou(a, b, offset=0):
    """IoU of two boxes of integers as a fraction; 0 where the union is empty."""
    sides = [max(0, min(a[k + 2], b[k + 2]) - max(a[k], b[k]) + offset) for k in (0, 1)]
    area_a, area_b = ((box[2] - box[0] + offset) * (box[3] - box[1] + offset) for box in (a, b))
    shared = sides[0] * sides[1]
    union = area_a + area_b - shared
    return Fraction(shared, union) if union else Fraction(0)


def exact_nms(boxes, scores, threshold, offset=0, groups=None):
    """Greedy NMS within groups; of equal scores the earlier box goes first."""
    kept = []
    for i in sorted(range(len(boxes)), key=lambda i: (-scores[i], i)):
        rivals = [j for j in kept if groups is None or groups[i] == groups[j]]
        if all(exact_iou(boxes[i], boxes[j], offset) <= threshold for j in rivals):
            kept.append(i)
    return kept


def random_boxes(seed, count=60, ties=True):
    """Boxes of small integers, some without area, in a crowd; scores in few levels, or no two equal."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 5, (count, 2))
    boxes = np.concatenate((corner, corner + rng.integers(0, 9, (count, 2))), axis=1)
    scores = rng.integers(1, 13, count) / 16 if ties else rng.random(count, dtype=np.float32)
    return boxes.tolist(), scores.tolist()


@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('threshold', [Fraction(1, 10), Fraction(1, 2), Fraction(3, 5), Fraction(7, 10)])
@pytest.mark.parametrize('seed', range(4))
def test_nms_keeps_the_same_boxes_as_exact_arithmetic(ops, seed, threshold, offset):
    boxes, scores = random_boxes(seed)
    expected = exact_nms(boxes, scores, threshold, offset)
    assert 1 < len(expected) < len(boxes)  # the case tells something
    dets, kept = ops.nms(torch.tensor(boxes).float(), torch.tensor(scores), float(threshold), offset=offset)
    assert kept.tolist() == expected and dets.tolist() == [[*boxes[i], scores[i]] for i in expected]


def test_nms_keeps_a_box_whose_iou_is_the_threshold(ops):
    """IoU 12/20: as float32 above .6, so a comparison in double would drop the box."""
    boxes, scores = torch.tensor([[0., 0, 4, 4], [1, 0, 5, 4]]), torch.tensor([.9, .8])
    assert ops.nms(boxes, scores, .6)[1].tolist() == [0, 1]
    assert ops.nms(boxes, scores, .599)[1].tolist() == [0]


def test_nms_score_threshold_max_num_and_numpy(ops):
    boxes, scores = random_boxes(7)
    expected = [i for i in exact_nms(boxes, scores, Fraction(1, 2)) if scores[i] > .25][:5]
    dets, kept = ops.nms(np.array(boxes, np.float32), np.array(scores, np.float32), .5, score_threshold=.25, max_num=5)
    assert kept.tolist() == expected and dets[:, 4].tolist() == [scores[i] for i in expected]


@pytest.mark.parametrize('box_dtype, score_dtype', [
    (torch.float16, torch.float16), (torch.bfloat16, torch.bfloat16), (torch.float32, torch.float16),
    (torch.float32, torch.bfloat16), (torch.float64, torch.float32), (torch.float64, torch.float64)])
@pytest.mark.parametrize('offset', [0, 1])
def test_nms_takes_any_mixture_of_dtypes(ops, box_dtype, score_dtype, offset):
    boxes, scores = random_boxes(3)
    dets, kept = ops.nms(torch.tensor(boxes).to(box_dtype), torch.tensor(scores).to(score_dtype), .5, offset=offset)
    assert kept.tolist() == exact_nms(boxes, scores, Fraction(1, 2), offset)
    assert kept.dtype == torch.int64 and dets.dtype == torch.promote_types(box_dtype, score_dtype)


def test_nms_of_no_boxes(ops):
    none = torch.zeros(0, 4), torch.zeros(0)
    for dets, kept in (ops.nms(*none, .5), ops.nms(*none, .5, offset=1), ops.soft_nms(*none),
                       ops.batched_nms(*none, torch.zeros(0).long(), {'iou_threshold': .5}, class_agnostic=True)):
        assert dets.shape == (0, 5) and kept.shape == (0,) and kept.dtype == torch.int64


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('mode', ['by class', 'agnostic', 'split'])
def test_batched_nms(ops, seed, mode):
    boxes, scores = random_boxes(seed, ties=mode != 'split')  # mmcv sorts the parts together, unstably
    classes = np.random.default_rng(100 + seed).integers(0, 3, len(boxes)).tolist()
    config = {'type': 'nms', 'iou_threshold': .5, 'split_thr': 10 if mode == 'split' else 10000}
    expected = exact_nms(boxes, scores, Fraction(1, 2), groups=None if mode == 'agnostic' else classes)
    dets, kept = ops.batched_nms(torch.tensor(boxes).float(), torch.tensor(scores), torch.tensor(classes), config,
                                 class_agnostic=mode == 'agnostic')
    assert kept.tolist() == expected and dets.tolist() == [[*boxes[i], scores[i]] for i in expected]


def plain_soft_nms(boxes, scores, threshold, sigma, min_score, method, offset):
    scores, left, kept = list(scores), list(range(len(boxes))), []
    while left:
        best = max(left, key=lambda i: (scores[i], -i))
        left.remove(best)
        kept.append((best, scores[best]))
        for i in left:
            iou = float(exact_iou(boxes[best], boxes[i], offset))
            if method == 'gaussian':
                scores[i] *= math.exp(-iou * iou / sigma)
            elif iou >= threshold:
                scores[i] *= 0 if method == 'naive' else 1 - iou
        left = [i for i in left if scores[i] >= min_score]
    return kept


@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('method', ['naive', 'linear', 'gaussian'])
@pytest.mark.parametrize('seed', range(3))
def test_soft_nms(ops, seed, method, offset):
    boxes, scores = random_boxes(seed, ties=False)
    expected = plain_soft_nms(boxes, scores, .3, .5, .0517, method, offset)
    given = torch.tensor(scores)
    dets, kept = ops.soft_nms(torch.tensor(boxes).float(), given, .3, .5, .0517, method, offset)
    assert kept.tolist() == [i for i, _ in expected] and 1 < len(expected) < len(boxes) and given.tolist() == scores
    assert dets[:, :4].tolist() == [boxes[i] for i, _ in expected]
    assert np.allclose(dets[:, 4], [score for _, score in expected], rtol=1e-5, atol=0)


# --- RoIAlign ---

SHAPE = (2, 3, 9, 11)
ROIS = [[0, 4, 4, 24, 20], [1, 1, 2.5, 30.75, 33], [0, -9, -7, 12, 15], [1, 20, 18, 60, 70], [0, 8, 8, 8, 8],
        [1, 5, 5, 5.5, 25], [0, 200, 200, 240, 240]]  # outside in part or whole, without area, thin


def roi_align_weights(rois, out, scale, ratio, aligned, shape=SHAPE):
    """The linear map of RoIAlign: one row per output bin, one column per pixel of the batch."""
    batch, _, height, width = shape
    rows = np.zeros((len(rois), *out, batch, height, width))
    for k, (image, *box) in enumerate(rois):
        x1, y1, x2, y2 = (value * scale - .5 * aligned for value in box)
        size = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
        bins = [side / count for side, count in zip(size, out, strict=True)]
        grid = [ratio or math.ceil(side) for side in bins]
        for row, column, j, i in np.ndindex(*out, *grid):
            y, x = y1 + (row + (j + .5) / grid[0]) * bins[0], x1 + (column + (i + .5) / grid[1]) * bins[1]
            if not (-1 <= y <= height and -1 <= x <= width):
                continue
            y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
            for py, px in {(math.floor(y), math.floor(x)), (math.floor(y), math.ceil(x)),
                           (math.ceil(y), math.floor(x)), (math.ceil(y), math.ceil(x))}:
                rows[k, row, column, int(image), py, px] += (1 - abs(y - py)) * (1 - abs(x - px)) / (grid[0] * grid[1])
    return rows


def features(dtype=torch.float32, seed=0):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize('scale', [.25, 1.])
@pytest.mark.parametrize('ratio', [0, 2])
@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('out', [(2, 2), (3, 5)])
def test_roi_align_forward_and_backward(ops, out, aligned, ratio, scale):
    x, rois = features().requires_grad_(), torch.tensor(ROIS)
    y = ops.RoIAlign(out, scale, ratio, aligned=aligned)(x, rois)
    weights = roi_align_weights(ROIS, out, scale, ratio, aligned)
    expected = np.einsum('kpqbhw,bchw->kcpq', weights, x.detach().double().numpy())
    assert y.shape == (len(ROIS), SHAPE[1], *out)
    np.testing.assert_allclose(y.detach(), expected, rtol=0, atol=2e-5)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    y.backward(grad.transpose(2, 3).contiguous().transpose(2, 3))  # strides as a head may leave them
    np.testing.assert_allclose(x.grad, np.einsum('kpqbhw,kcpq->bchw', weights, grad.double().numpy()), rtol=0,
                               atol=2e-5)


@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 2])
def test_roi_align_gradcheck(ops, aligned, ratio):
    x, rois = features(torch.float64).requires_grad_(), torch.tensor(ROIS, dtype=torch.float64)
    assert torch.autograd.gradcheck(ops.RoIAlign((2, 3), .25, ratio, aligned=aligned), (x, rois))


@pytest.mark.parametrize('dtype, step', [(torch.float16, 2**-11), (torch.bfloat16, 2**-8), (torch.float64, 0)])
@pytest.mark.parametrize('rois_dtype', ['float32', 'same'])
def test_roi_align_of_other_dtypes_rounds_once(ops, dtype, step, rois_dtype):
    x = features(dtype).requires_grad_()
    rois = torch.tensor(ROIS, dtype=dtype if rois_dtype == 'same' else torch.float32)
    y = ops.RoIAlign((2, 3), .25)(x, rois)
    weights = roi_align_weights(rois.tolist(), (2, 3), .25, 0, True)
    expected = np.einsum('kpqbhw,bchw->kcpq', weights, x.detach().double().numpy())
    assert y.dtype == dtype
    np.testing.assert_allclose(y.detach().double(), expected, rtol=step, atol=1e-5)
    y.backward(torch.ones_like(y))
    assert x.grad.dtype == dtype
    per_pixel = np.broadcast_to(weights.sum((0, 1, 2))[:, None], SHAPE)
    np.testing.assert_allclose(x.grad.double(), per_pixel, rtol=step, atol=1e-5)


def test_operators_under_autocast(ops):
    conv = torch.nn.Conv2d(3, 3, 1)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        x = conv(features())
        y = ops.RoIAlign((2, 2), .25)(x, torch.tensor(ROIS))
        kept = ops.nms(torch.tensor([[0., 0, 4, 4], [1, 0, 5, 4], [9, 9, 12, 12]]),
                       torch.tensor([.5, .75, .25], dtype=torch.bfloat16), .5)[1]
    assert x.dtype == y.dtype == torch.bfloat16 and kept.tolist() == [1, 2]
    expected = np.einsum('kpqbhw,bchw->kcpq', roi_align_weights(ROIS, (2, 2), .25, 0, True), x.detach().double())
    np.testing.assert_allclose(y.detach().double(), expected, rtol=2**-8, atol=1e-5)
    y.float().sum().backward()
    assert conv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_roi_align_of_no_rois(ops, dtype):
    x = features(dtype).requires_grad_()
    y = ops.RoIAlign((7, 7), .25)(x, torch.zeros(0, 5, dtype=dtype))
    assert y.shape == (0, SHAPE[1], 7, 7)
    y.sum().backward()
    assert x.grad.shape == SHAPE and not x.grad.any()


def test_roi_align_max_is_refused_in_one_line(ops):
    with pytest.raises(UserError, match=r"pool_mode='max'.*use pool_mode='avg'.*compiled operators") as caught:
        ops.RoIAlign((2, 2), pool_mode='max')(features(), torch.tensor(ROIS))
    assert '\n' not in str(caught.value)


# --- sigmoid focal loss ---

@pytest.mark.parametrize('gamma, alpha', [(2., .25), (1.5, .5), (0., .75)])
def test_focal_loss_equals_the_one_of_mmdet(ops, gamma, alpha):
    """Class 4 of 4 and -1 are background: negative for all classes."""
    reference = pytest.importorskip('mmdet.models.losses.focal_loss').py_sigmoid_focal_loss
    target = torch.tensor([0, 3, 4, 1, 2, -1, 0])
    logits = 3 * torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one_hot = torch.tensor([[float(t == c) for c in range(4)] for t in target.tolist()])
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = ops.sigmoid_focal_loss(ours, target, gamma, alpha, None, 'none')
    expected = reference(theirs, one_hot, gamma=gamma, alpha=alpha, reduction='none')
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    scale = torch.rand(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss.backward(scale)
    expected.backward(scale)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)


def test_focal_loss_weight_and_reduction(ops):
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    target, weight = torch.tensor([0, 1, 2, 3, 1]), torch.tensor([2., 3., 5.], dtype=torch.float64)
    plain = ops.sigmoid_focal_loss(logits, target, 2., .25, None, 'none')
    weighted = ops.sigmoid_focal_loss(logits, target, 2., .25, weight, 'none')
    torch.testing.assert_close(weighted, plain * torch.tensor([[2.], [3.], [5.], [1.], [3.]]))
    assert ops.sigmoid_focal_loss(logits, target, 2., .25, weight, 'mean').item() == pytest.approx(
        weighted.sum().item() / 5)
    assert torch.autograd.gradcheck(lambda x: ops.sigmoid_focal_loss(x, target, 2., .25, weight, 'sum'), (logits,))
    assert ops.sigmoid_focal_loss(logits[:0], target[:0], 2., .25, weight, 'none').shape == (0, 3)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_focal_loss_of_extreme_logits_is_finite(ops, dtype):
    logits = torch.tensor([[-200., 200.], [200., -200.], [0., 0.]], dtype=dtype, requires_grad=True)
    loss = ops.sigmoid_focal_loss(logits, torch.tensor([0, 0, 2]), 2., .25, None, 'none')
    loss.sum().backward()
    assert loss.dtype == logits.grad.dtype == dtype
    assert np.allclose(loss.detach().float(), [[50, 150], [0, 0], [.75 * .25 * math.log(2)] * 2], rtol=2**-8)
    assert np.allclose(logits.grad.float()[:2], [[-.25, .75], [0, 0]], rtol=2**-8)


# --- the module ---

def test_missing_operator_is_named_with_what_to_do(ops):
    with pytest.raises(UserError, match="'roi_pool_forward' is not in the torchvision stand-in: install") as caught:
        ops.roi_pool(features(), torch.tensor(ROIS), (2, 2))
    assert '\n' not in str(caught.value)
    with pytest.raises(UserError, match="'deform_conv_forward'"):
        ops.deform_conv2d(torch.zeros(1, 1, 4, 4), torch.zeros(1, 18, 2, 2), torch.zeros(1, 1, 3, 3))


def test_module_looks_real_to_tools(ops):
    ext = sys.modules['mmcv._ext']
    assert importlib.import_module('mmcv._ext') is ext is mmcv._ext
    assert importlib.util.find_spec('mmcv._ext') is ext.__spec__ and ext.__spec__.loader is not None
    for name in ('__path__', '__wrapped__', '__file__', '__deepcopy__', '_private'):
        with pytest.raises(AttributeError, match=name):
            getattr(ext, name)
    assert ext.psamask_forward is ext.psamask_forward
    assert inspect.unwrap(ext.psamask_forward).__name__ == 'psamask_forward'
    assert pickle.loads(pickle.dumps(ext.nms)) is ext.nms
    assert not any(test.examples for test in doctest.DocTestFinder().find(ext))
    assert 'torchvision' in ops.get_compiler_version() and 'torchvision' in ops.get_compiling_cuda_version()


@pytest.fixture
def fresh(ops, monkeypatch):
    """As in a process that has not called install yet, and has no mmengine logger."""
    from mmengine.logging import MMLogger
    monkeypatch.delitem(sys.modules, 'mmcv._ext')
    monkeypatch.setattr(mmcv, '_ext', None)
    monkeypatch.setattr(torchvision_ext, '_announced', False)
    monkeypatch.setattr(MMLogger, '_instance_dict', OrderedDict())
    for variable in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def test_install_is_idempotent_and_logs_once(fresh, caplog):
    assert install()
    module = sys.modules['mmcv._ext']
    assert install() and sys.modules.pop('mmcv._ext') is module is mmcv._ext
    assert install()
    assert [record.getMessage() for record in caplog.records] == [
        'mmcv has no compiled operators: using nms and roi_align of torchvision; operators that it lacks raise when '
        'called']


def test_install_uses_the_logger_of_mmengine_once_there_is_one(fresh, caplog):
    from mmengine.logging import MMLogger
    records, handler = [], logging.Handler()
    handler.emit = records.append
    MMLogger.get_instance('test_ops').handlers[:] = [handler]
    assert install() and install()
    assert len(records) == 1 and not caplog.records
    assert 'using nms and roi_align of torchvision' in records[0].getMessage()


@pytest.mark.parametrize('variable', ['RANK', 'SLURM_PROCID'])
def test_only_rank_0_logs(fresh, caplog, variable):
    fresh.setenv(variable, '1')
    assert install() and not caplog.records


def test_broken_build_is_replaced_and_its_reason_logged(fresh, caplog, tmp_path):
    (tmp_path / '_ext.py').write_text('raise ImportError("_ext.so:\\n  undefined symbol: _ZN3c105ErrorC2E")\n')
    fresh.setattr(mmcv, '__path__', [*mmcv.__path__, str(tmp_path)])
    assert install()
    message, = [record.getMessage() for record in caplog.records]
    assert message.startswith('the compiled operators of mmcv cannot be loaded (ImportError: _ext.so: undefined '
                              'symbol: _ZN3c105ErrorC2E): using nms') and '\n' not in message


def test_without_mmcv_or_torchvision_it_says_what_to_install(fresh):
    broken = 'install the torchvision built for torch'
    for patch, place, value, message in (('setitem', (sys.modules, 'torchvision'), None, broken),
                                         ('setattr', (torch.ops, 'torchvision'), object(), broken),
                                         ('setitem', (sys.modules, 'mmcv'), None, 'run `pip install onedl-mmcv`')):
        with fresh.context() as without, pytest.raises(UserError, match=message) as caught:
            getattr(without, patch)(*place, value)
            install()
        assert '\n' not in str(caught.value) and 'mmcv._ext' not in sys.modules


def run_python(source, *arguments):
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', source, *arguments], capture_output=True, text=True,
                          env={**os.environ, 'RANK': '0'}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def test_compiled_operators_win(tmp_path):
    (tmp_path / '_ext.py').write_text('nms = "compiled"\n')
    done = run_python('import sys, mmcv\n'
                      'mmcv.__path__.insert(0, sys.argv[1])\n'
                      'import mmkcla\n'
                      'print(mmkcla.use_torchvision_ops(), mmkcla.use_torchvision_ops())\n'
                      'import mmcv._ext\n'
                      'print(mmcv._ext.nms, "torchvision" in sys.modules)\n', str(tmp_path))
    assert done.stdout.split() == ['False', 'False', 'compiled', 'False'] and 'of torchvision' not in done.stderr


def test_install_after_failed_imports_logs_one_line(ops):
    done = run_python('import mmcv.cnn.bricks.transformer\n'
                      'try:\n'
                      '    import mmcv.ops\n'
                      'except ImportError:\n'
                      '    print("failed")\n'
                      'import mmkcla\n'
                      'print(mmkcla.use_torchvision_ops(), mmkcla.use_torchvision_ops())\n'
                      'import mmcv.ops, mmdet.models\n'
                      'print(mmcv.ops.RoIAlign.__name__, mmcv._ext.__name__)\n')
    assert done.stdout.split() == ['failed', 'True', 'True', 'RoIAlign', 'mmcv._ext']
    assert (done.stdout + done.stderr).count('using nms and roi_align of torchvision') == 1
