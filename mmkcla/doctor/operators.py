"""mmcv's compiled operators, or torchvision's in their place: which are used, and whether they compute."""
from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator

from ..utils.text import one_line
from .finding import Finding, note, ok, problem

EXT = 'mmcv._ext'
REINSTALL = ('install an mmcv built for this torch, or remove the compiled operators: '
             'pip install --force-reinstall --no-deps onedl-mmcv')
_BOXES = ((0., 0, 2, 2), (0, 0, 2, 2), (4, 4, 6, 6))
_SCORES = (.5, .9, .7)
_KEPT = [1, 2]
_POOLED = [5.5, 7.5, 25.5, 27.5]  # means of x + 10 y over the four quarters of a box


def check() -> Iterator[Finding]:
    """Import the operators, replace them if they are missing, and compare NMS and RoIAlign with known results."""
    from ..errors import UserError
    from ..ops import install
    if importlib.util.find_spec(EXT) is None:
        yield note('operators', 'mmcv has no compiled operators; torchvision computes NMS and RoIAlign',
                   'only deformable convolutions and other rare operators need a compiled mmcv; see README.md, Install')
    else:
        try:
            importlib.import_module(EXT)
        except Exception as error:
            yield problem('operators', 'the compiled operators of mmcv cannot be loaded; torchvision computes NMS and '
                          f'RoIAlign ({one_line(error, 200)})', REINSTALL)
        else:
            yield ok('operators', 'compiled with mmcv')
    try:
        install()
    except UserError as error:
        yield problem('operators', one_line(error), 'see torchvision')
        return
    yield from _values()


def _values() -> Iterator[Finding]:
    import torch
    for device in ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]:
        try:
            kept, pooled = compute(device)
        except Exception as error:  # e.g. an mmcv compiled without CUDA
            yield problem(f'operators on {device}', f'NMS or RoIAlign failed: {one_line(error, 200)}', REINSTALL)
            continue
        if kept != _KEPT or max(abs(a - b) for a, b in zip(pooled, _POOLED, strict=True)) > 1e-4:
            yield problem(f'operators on {device}', f'wrong results: NMS gave {kept} (expected {_KEPT}), RoIAlign '
                          f'{pooled} (expected {_POOLED})', REINSTALL)
        else:
            yield ok(f'operators on {device}', 'NMS and RoIAlign give the expected values')


def compute(device: str) -> tuple[list[int], list[float]]:
    """Three boxes through NMS, and RoIAlign of x + 10 y over a box of 4 x 4 pixels."""
    import torch
    from mmcv.ops import nms, roi_align
    boxes, scores = torch.tensor(_BOXES, device=device), torch.tensor(_SCORES, device=device)
    _, kept = nms(boxes, scores, iou_threshold=.5)
    line = torch.arange(6., device=device)
    image = (line + 10 * line[:, None])[None, None]
    pooled = roi_align(image, torch.tensor([[0., 0, 0, 4, 4]], device=device), (2, 2), 1., 0, 'avg', True)
    return kept.tolist(), pooled.flatten().tolist()
