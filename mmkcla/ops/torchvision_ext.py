"""A replacement for ``mmcv._ext``, the compiled operators of mmcv, based on torchvision.

mmcv installed by pip has no compiled operators, so ``import mmcv.ops`` fails, and with it mmdet. torchvision ships NMS
and RoIAlign, compiled for CPU and CUDA; Faster, Mask and Cascade R-CNN need no others. Soft-NMS and the sigmoid focal
loss (RetinaNet on CUDA) are implemented in plain torch. All other operators exist by name, so that ``mmcv.ops`` can be
imported, and raise when called.

The functions keep the signatures of the compiled operators: results are written to tensors passed by the caller.
Tensors are never moved to another device. Half precision is computed in float32 and rounded once at the end. As with
the compiled operators, the backward of RoIAlign on CUDA is not deterministic.
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
    """Replace mmcv's compiled operators by those of torchvision if they cannot be imported.

    Call this before importing ``mmcv.ops``, ``mmdet`` or ``mmseg``. One line is logged per process, on rank 0, with the
    reason if compiled operators exist but cannot be loaded. Further calls have no effect.

    Returns:
        True if the replacement is active, False if the compiled operators are used.

    Raises:
        UserError: mmcv is not installed, or the operators of torchvision cannot be loaded.
    """
    try:
        mmcv = importlib.import_module('mmcv')
    except ModuleNotFoundError as error:
        if error.name != 'mmcv':
            raise
        raise UserError('mmcv is not installed: run `pip install onedl-mmcv`') from error
    try:
        return isinstance(importlib.import_module(EXT_NAME), _StandInModule)
    except Exception as error:  # a build for another torch version can raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == EXT_NAME
        reason = 'mmcv has no compiled operators' if absent else (
            f'the compiled operators of mmcv cannot be loaded ({_one_line(error)})')
    _require_torchvision()
    spec = importlib.util.spec_from_loader(EXT_NAME, _Loader(), origin=__name__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[EXT_NAME] = mmcv._ext = module
    _announce(f'{reason}: using nms and roi_align of torchvision; operators that it lacks raise when called')
    return True


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float, offset: int) -> torch.Tensor:
    """Return the indices of the boxes kept by greedy NMS, by descending score; ties keep the order of the boxes.

    Args:
        boxes: (n, 4), x1, y1, x2, y2 in pixels; n may be 0.
        scores: (n,).
        iou_threshold: a box is dropped if its IoU with a kept box of higher score is strictly greater.
        offset: 0, or 1 for boxes whose width is x2 - x1 + 1.
    """
    boxes, scores = _to_common_dtype(boxes, scores)
    if offset:
        # x2 + 1 changes all widths, of boxes and intersections, like an offset of 1: the IoU is the same
        boxes = boxes + boxes.new_tensor([0, 0, offset, offset])
    # mmcv compares in the precision of the boxes, torchvision on CPU in double, where float32 0.6 is above 0.6
    iou_threshold = torch.tensor(iou_threshold, dtype=boxes.dtype).item()
    return torch.ops.torchvision.nms(boxes, scores, iou_threshold)


def softnms(boxes: torch.Tensor, scores: torch.Tensor, dets: torch.Tensor, iou_threshold: float, sigma: float,
            min_score: float, method: int, offset: int) -> torch.Tensor:
    """Soft-NMS (Bodla et al., ICCV 2017): scores are reduced by overlap with better boxes; no box is dropped for it.

    Args:
        boxes: (n, 4), x1, y1, x2, y2 in pixels; n may be 0.
        scores: (n,).
        dets: (n, 5), output: the kept boxes and their new scores, best first; further rows are unchanged.
        iou_threshold: methods 0 and 1 apply from this IoU on.
        sigma: width of the Gaussian of method 2.
        min_score: boxes with a score below it are dropped.
        method: factor on the score: 0 (naive) 0; 1 (linear) 1 - IoU; 2 (Gaussian) exp(-IoU² / sigma).
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
        iou = (shared / (areas[best] + areas[left] - shared)).nan_to_num()  # 0 / 0 for two empty boxes
        if method == 2:
            scores[left] *= torch.exp(-iou**2 / sigma)
        else:
            scores[left] *= torch.where(iou >= iou_threshold, 1 - iou if method == 1 else 0, 1)
        left = left[scores[left] >= min_score]
    return torch.stack(kept) if kept else left


def roi_align_forward(input: torch.Tensor, rois: torch.Tensor, output: torch.Tensor, argmax_y: torch.Tensor,
                      argmax_x: torch.Tensor, aligned_height: int, aligned_width: int, spatial_scale: float,
                      sampling_ratio: int, pool_mode: int, aligned: bool) -> None:
    """RoIAlign with average pooling.

    Args:
        input: (n, c, h, w).
        rois: (k, 5), batch index, then x1, y1, x2, y2 in image pixels; k may be 0. The dtype may differ from
            ``input``.
        output: (k, c, aligned_height, aligned_width), output.
        argmax_y, argmax_x: only for max pooling; unused.
        spatial_scale: scale from image pixels to pixels of ``input``.
        sampling_ratio: samples per bin and axis; 0 uses one per pixel, rounded up.
        pool_mode: 1 (average).
        aligned: shift by half a pixel, so that pixel centres are at .5.

    Raises:
        UserError: ``pool_mode`` is 0 (max).
    """
    _require_average(pool_mode)
    features, rois = _to_common_dtype(input, rois)
    output.copy_(torch.ops.torchvision.roi_align(features, rois, spatial_scale, aligned_height, aligned_width,
                                                 sampling_ratio, aligned))


def roi_align_backward(grad_output: torch.Tensor, rois: torch.Tensor, argmax_y: torch.Tensor, argmax_x: torch.Tensor,
                       grad_input: torch.Tensor, aligned_height: int, aligned_width: int, spatial_scale: float,
                       sampling_ratio: int, pool_mode: int, aligned: bool) -> None:
    """Add the gradient of :func:`roi_align_forward` to ``grad_input`` (n, c, h, w); same arguments otherwise.

    Raises:
        UserError: ``pool_mode`` is 0 (max).
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
        target: (n,), int64, the class; any value outside 0 … c - 1 is background, a negative for all c classes.
        weight: (c,), weight of a row by its target class (1 for background), or empty for no weights.
        output: (n, c), output: -alpha (1 - p)^gamma log p for the target, -(1 - alpha) p^gamma log(1 - p) elsewhere.
    """
    logits, is_target, row_weight = _focal_terms(input, target, weight)
    # log-sigmoid, since log(sigmoid(x)) is -inf for large negative logits
    positive = -alpha * torch.sigmoid(-logits)**gamma * F.logsigmoid(logits)
    negative = -(1 - alpha) * torch.sigmoid(logits)**gamma * F.logsigmoid(-logits)
    output.copy_(torch.where(is_target, positive, negative) * row_weight)


def sigmoid_focal_loss_backward(input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor,
                                grad_input: torch.Tensor, gamma: float, alpha: float) -> None:
    """Write the derivative of :func:`sigmoid_focal_loss_forward` with respect to each logit to ``grad_input``."""
    logits, is_target, row_weight = _focal_terms(input, target, weight)
    p, q = torch.sigmoid(logits), torch.sigmoid(-logits)
    positive = -alpha * q**gamma * (q - gamma * p * F.logsigmoid(logits))
    negative = -(1 - alpha) * p**gamma * (gamma * q * F.logsigmoid(-logits) - p)
    grad_input.copy_(torch.where(is_target, positive, negative) * row_weight)


def get_compiler_version() -> str:
    """Compiler shown in the environment report of mmcv."""
    return 'n/a (torchvision stand-in)'


def get_compiling_cuda_version() -> str:
    """CUDA version shown in the environment report of mmcv."""
    return 'n/a (torchvision stand-in)'


_OPERATORS = (nms, softnms, roi_align_forward, roi_align_backward, sigmoid_focal_loss_forward,
              sigmoid_focal_loss_backward, get_compiler_version, get_compiling_cuda_version)


class _StandInModule(types.ModuleType):
    """Provide every operator by name, as mmcv asserts on import; those that torchvision lacks raise when called."""

    def __getattr__(self, name):
        # inspect, doctest and pickle probe attributes like __wrapped__, which must not exist
        if name.startswith('_'):
            raise AttributeError(f'module {self.__name__!r} has no attribute {name!r}')

        def missing(*args, **kwargs):
            raise UserError(f'mmcv operator {name!r} is not in the torchvision stand-in: {HOW_TO_COMPILE}')

        missing.__name__ = missing.__qualname__ = name
        setattr(self, name, missing)
        return missing


class _Loader(importlib.abc.Loader):
    # mmcv and mmengine check the spec, and mmcv its loader, to find out whether operators exist

    def create_module(self, spec):
        return _StandInModule(spec.name, 'torchvision in place of the compiled operators of mmcv (see mmkcla.ops).')

    def exec_module(self, module):
        for operator in _OPERATORS:
            setattr(module, operator.__name__, operator)


def _to_common_dtype(*tensors):
    # torchvision needs equal dtypes, and its CPU kernels do not support bfloat16
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return [tensor.to(dtype) for tensor in tensors]


def _require_average(pool_mode):
    if pool_mode != 1:
        raise UserError("RoIAlign with pool_mode='max' is not in the torchvision stand-in: use pool_mode='avg', or "
                        f'{HOW_TO_COMPILE}')


def _focal_terms(input, target, weight):
    """Return logits (n, c) in float32 or higher, the one-hot target mask (n, c), and row weights (n, 1)."""
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
        raise UserError(f'the operators of torchvision cannot be loaded ({_one_line(error)}): install the torchvision '
                        f'built for torch {torch.__version__}') from error


def _announce(message):
    global _announced
    if _announced or rank() != 0:
        return
    _announced = True
    from mmengine.logging import MMLogger
    # do not create mmengine's logger before the runner does: its handlers fix the rank permanently
    current = MMLogger.get_current_instance() if MMLogger._instance_dict else logging.getLogger('mmkcla')
    current.warning(message)


def _one_line(error):
    return ' '.join(f'{type(error).__name__}: {error}'.split())
