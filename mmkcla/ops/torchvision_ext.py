"""A stand-in for ``mmcv._ext``, mmcv's compiled operators, made of torchvision's.

mmcv as pip installs it has no compiled operators, and then ``import mmcv.ops``, and with it mmdet, fails. torchvision
ships the ones that Faster, Mask and Cascade R-CNN need, compiled for CPU and CUDA: NMS and RoIAlign. Soft-NMS and the
sigmoid focal loss (RetinaNet on CUDA) are written in plain torch. Every other operator exists by name, so that
``mmcv.ops`` can be imported, and raises when it is called.

The functions below keep the signatures of the compiled operators: results go into tensors that the caller passes in.
They never move a tensor to another device. Half precision is computed in float32 and rounded once, at the end; as with
the compiled operators, the backward of RoIAlign on CUDA adds in no fixed order.
"""
import functools
import importlib
import importlib.abc
import importlib.util
import logging
import sys
import types

import torch
import torch.nn.functional as F

from ..errors import UserError
from ..utils.ranks import rank

EXT_NAME = 'mmcv._ext'
HOW_TO_COMPILE = ('install onedl-mmcv with compiled operators (a wheel from the onedl index, or built against your '
                  "torch with pip's --no-build-isolation)")

_announced = False


def install() -> bool:
    """Let torchvision stand in for mmcv's compiled operators where they cannot be imported.

    Call it before importing ``mmcv.ops``, ``mmdet`` or ``mmseg``. Once per process it logs, on rank 0, one line that
    says so, with the reason if compiled operators exist but do not load. Further calls change nothing.

    Returns:
        True if the stand-in is active, False if the compiled operators are used.

    Raises:
        UserError: mmcv is not installed, or torchvision's own operators do not load.
    """
    try:
        mmcv = importlib.import_module('mmcv')
    except ModuleNotFoundError as error:
        if error.name != 'mmcv':
            raise
        raise UserError('mmcv is not installed: run `pip install onedl-mmcv`') from error
    try:
        return isinstance(importlib.import_module(EXT_NAME), _StandInModule)
    except Exception as error:  # a build for another torch fails in many ways, not by ImportError alone
        absent = isinstance(error, ModuleNotFoundError) and error.name == EXT_NAME
        reason = 'mmcv has no compiled operators' if absent else (
            f'the compiled operators of mmcv do not load ({_one_line(error)})')
    _require_torchvision()
    spec = importlib.util.spec_from_loader(EXT_NAME, _Loader(), origin=__name__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[EXT_NAME] = mmcv._ext = module
    _announce(f'{reason}: torchvision stands in for nms and roi_align; operators it lacks raise when called')
    return True


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float, offset: int) -> torch.Tensor:
    """Indices of the boxes kept by greedy NMS, best score first; of equal scores the earlier box goes first.

    Args:
        boxes: (n, 4), x1, y1, x2, y2 in pixels; n may be 0.
        scores: (n,).
        iou_threshold: a box is dropped if its IoU with a better, kept one is strictly greater.
        offset: 0, or 1 for boxes whose width is x2 - x1 + 1.
    """
    boxes, scores = _to_common_dtype(boxes, scores)
    if offset:
        # x2 + 1 enters every width, of boxes and of intersections, as an offset of 1 would: the same IoU
        boxes = boxes + boxes.new_tensor([0, 0, offset, offset])
    # mmcv compares in the boxes' precision, torchvision on CPU in double: there an IoU of exactly 0.6 is above 0.6
    iou_threshold = torch.tensor(iou_threshold, dtype=boxes.dtype).item()
    return torch.ops.torchvision.nms(boxes, scores, iou_threshold)


def softnms(boxes: torch.Tensor, scores: torch.Tensor, dets: torch.Tensor, iou_threshold: float, sigma: float,
            min_score: float, method: int, offset: int) -> torch.Tensor:
    """Soft-NMS (Bodla et al., ICCV 2017): boxes lose score by their overlap with better ones instead of being dropped.

    Args:
        boxes: (n, 4), x1, y1, x2, y2 in pixels; n may be 0.
        scores: (n,).
        dets: (n, 5), written: the kept boxes and their new scores, best first; rows beyond the kept stay as they are.
        iou_threshold: from this IoU on, methods 0 and 1 act.
        sigma: the width of method 2.
        min_score: a box whose score falls below it is dropped.
        method: factor on the score: 0 naive, 0; 1 linear, 1 - IoU; 2 Gaussian, exp(-IoU² / sigma).
        offset: 0, or 1 for boxes whose width is x2 - x1 + 1.

    Returns:
        Indices of the kept boxes, (k,), in the order of ``dets``.
    """
    boxes, scores = _to_common_dtype(boxes, scores)
    scores = scores.clone()
    low, high = boxes[:, :2], boxes[:, 2:] + offset
    areas = (high - low).prod(dim=1)
    left = torch.arange(len(boxes), device=boxes.device)
    kept = []
    while len(left):
        best = left[scores[left].argmax()]
        dets[len(kept)] = torch.cat((boxes[best], scores[best, None])).to(dets)
        kept.append(best)
        left = left[left != best]
        shared = (torch.minimum(high[best], high[left]) - torch.maximum(low[best], low[left])).clamp(min=0).prod(dim=1)
        iou = (shared / (areas[best] + areas[left] - shared)).nan_to_num()  # 0 / 0: two boxes without area
        if method == 2:
            scores[left] *= torch.exp(-iou**2 / sigma)
        else:
            scores[left] *= torch.where(iou >= iou_threshold, 1 - iou if method == 1 else 0, 1)
        left = left[scores[left] >= min_score]
    return torch.stack(kept) if kept else left


def roi_align_forward(input: torch.Tensor, rois: torch.Tensor, output: torch.Tensor, argmax_y: torch.Tensor,
                      argmax_x: torch.Tensor, aligned_height: int, aligned_width: int, spatial_scale: float,
                      sampling_ratio: int, pool_mode: int, aligned: bool) -> None:
    """RoIAlign by average.

    Args:
        input: (n, c, h, w).
        rois: (k, 5), index into n, then x1, y1, x2, y2 in pixels of the image; k may be 0. May differ from ``input``
            in dtype.
        output: (k, c, aligned_height, aligned_width), written.
        argmax_y, argmax_x: only for pooling by maximum; left alone.
        spatial_scale: from image pixels to those of ``input``.
        sampling_ratio: samples per bin and axis; 0 takes one per pixel, rounded up.
        pool_mode: 1, average.
        aligned: shift by half a pixel, so that pixel centres lie at .5.

    Raises:
        UserError: ``pool_mode`` is 0, maximum.
    """
    _require_average(pool_mode)
    features, rois = _to_common_dtype(input, rois)
    output.copy_(torch.ops.torchvision.roi_align(features, rois, spatial_scale, aligned_height, aligned_width,
                                                 sampling_ratio, aligned))


def roi_align_backward(grad_output: torch.Tensor, rois: torch.Tensor, argmax_y: torch.Tensor, argmax_x: torch.Tensor,
                       grad_input: torch.Tensor, aligned_height: int, aligned_width: int, spatial_scale: float,
                       sampling_ratio: int, pool_mode: int, aligned: bool) -> None:
    """Add the gradient of :func:`roi_align_forward` to ``grad_input`` (n, c, h, w); the other arguments as there.

    Raises:
        UserError: ``pool_mode`` is 0, maximum.
    """
    _require_average(pool_mode)
    grad_output, rois = _to_common_dtype(grad_output, rois)
    grad_input.add_(torch.ops.torchvision._roi_align_backward(grad_output, rois, spatial_scale, aligned_height,
                                                              aligned_width, *grad_input.shape, sampling_ratio,
                                                              aligned))


def sigmoid_focal_loss_forward(input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, output: torch.Tensor,
                               gamma: float, alpha: float) -> None:
    """Sigmoid focal loss (Lin et al., ICCV 2017, eq. 5), unreduced, with p = sigmoid(input).

    Args:
        input: logits, (n, c).
        target: (n,), int64, the class; any value outside 0 … c - 1 is background, negative for all c classes.
        weight: (c,), factor on a row by its target (1 for background), or empty for none.
        output: (n, c), written: -alpha (1 - p)^gamma log p for the target, -(1 - alpha) p^gamma log(1 - p) elsewhere.
    """
    logits, is_target, row_weight = _focal_terms(input, target, weight)
    # log-sigmoid, since log(sigmoid(x)) is -inf for large logits
    positive = -alpha * torch.sigmoid(-logits)**gamma * F.logsigmoid(logits)
    negative = -(1 - alpha) * torch.sigmoid(logits)**gamma * F.logsigmoid(-logits)
    output.copy_(torch.where(is_target, positive, negative) * row_weight)


def sigmoid_focal_loss_backward(input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor,
                                grad_input: torch.Tensor, gamma: float, alpha: float) -> None:
    """Write the derivative of each element of :func:`sigmoid_focal_loss_forward` by its logit to ``grad_input``."""
    logits, is_target, row_weight = _focal_terms(input, target, weight)
    p, q = torch.sigmoid(logits), torch.sigmoid(-logits)
    positive = -alpha * q**gamma * (q - gamma * p * F.logsigmoid(logits))
    negative = -(1 - alpha) * p**gamma * (gamma * q * F.logsigmoid(-logits) - p)
    grad_input.copy_(torch.where(is_target, positive, negative) * row_weight)


def get_compiler_version() -> str:
    """What mmcv's environment report prints as its compiler."""
    return 'n/a (torchvision stand-in)'


def get_compiling_cuda_version() -> str:
    """What mmcv's environment report prints as its CUDA version."""
    return 'n/a (torchvision stand-in)'


_OPERATORS = (nms, softnms, roi_align_forward, roi_align_backward, sigmoid_focal_loss_forward,
              sigmoid_focal_loss_backward, get_compiler_version, get_compiling_cuda_version)


class _StandInModule(types.ModuleType):
    """Has every operator by name, as mmcv asserts at import; those that torchvision lacks raise when called."""

    def __getattr__(self, name):
        # inspect, doctest and pickle probe __wrapped__ and the like, and would take any answer for a real one
        if name.startswith('_'):
            raise AttributeError(f'module {self.__name__!r} has no attribute {name!r}')

        def missing(*args, **kwargs):
            raise UserError(f'mmcv operator {name!r} is not in the torchvision stand-in: {HOW_TO_COMPILE}')

        missing.__name__ = missing.__qualname__ = name
        setattr(self, name, missing)
        return missing


class _Loader(importlib.abc.Loader):
    # mmcv and mmengine look for the spec, and mmcv for its loader, to tell whether operators exist

    def create_module(self, spec):
        return _StandInModule(spec.name, 'torchvision in place of the compiled operators of mmcv (see mmkcla.ops).')

    def exec_module(self, module):
        for operator in _OPERATORS:
            setattr(module, operator.__name__, operator)


def _to_common_dtype(*tensors):
    # torchvision wants one dtype for all, and its CPU kernels know no bfloat16
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return [tensor.to(dtype) for tensor in tensors]


def _require_average(pool_mode):
    if pool_mode != 1:
        raise UserError("RoIAlign with pool_mode='max' is not in the torchvision stand-in: use pool_mode='avg', or "
                        f'{HOW_TO_COMPILE}')


def _focal_terms(input, target, weight):
    """Logits (n, c) in float32 or better, whether each is its row's target (n, c), weight by row (n, 1)."""
    logits, weight = _to_common_dtype(input, weight)
    classes = torch.arange(logits.size(1), device=logits.device)
    is_target = target[:, None] == classes
    row_weight = logits.new_ones(len(logits), 1)
    if weight.numel():
        is_class = is_target.any(dim=1)
        row_weight[is_class] = weight[target[is_class], None]
    return logits, is_target, row_weight


def _require_torchvision():
    try:
        importlib.import_module('torchvision')  # registers its operators with torch
        for operator in ('nms', 'roi_align', '_roi_align_backward'):
            getattr(torch.ops.torchvision, operator)
    except (ImportError, RuntimeError, AttributeError) as error:
        raise UserError(f'the operators of torchvision do not load ({_one_line(error)}): install the torchvision made '
                        f'for torch {torch.__version__}') from error


def _announce(message):
    global _announced
    if _announced or rank() != 0:
        return
    _announced = True
    from mmengine.logging import MMLogger
    # before the runner has made its logger we must not make one: its handlers fix the rank for good
    current = MMLogger.get_current_instance() if MMLogger._instance_dict else logging.getLogger('mmkcla')
    current.warning(message)


def _one_line(error):
    return ' '.join(f'{type(error).__name__}: {error}'.split())
