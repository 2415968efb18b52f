"""Random images with labels for a model of any host, to run training steps without a data set."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError

OBJECTS = 4  # per image


def random_batch(model: nn.Module, scope: str, shape: tuple[int, int, int, int],
                 device: str) -> tuple[Tensor, list[Any]]:
    """Return normalised images ``(B, C, H, W)`` and their data samples, the same for every call.

    Detection: four boxes per image of a quarter of each side, with masks. Segmentation: a label map of random blocks.
    Classification: random labels.

    Raises:
        UserError: the host has no rule here.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(shape, generator=generator).to(device)
    makers = {'mmdet': _detection, 'mmseg': _segmentation, 'mmpretrain': _classification}
    if scope not in makers:
        raise UserError(f'no training step is known for default_scope {scope!r}; use mmdet, mmseg or mmpretrain')
    samples = [makers[scope](model, shape[2], shape[3], generator) for _ in range(shape[0])]
    return images, [sample.to(device) for sample in samples]


def _meta(height: int, width: int) -> dict[str, Any]:
    size = (height, width)
    return dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, scale_factor=(1., 1.),
                img_id=0, img_path='', flip=False, flip_direction=None)


def _detection(model: nn.Module, height: int, width: int, generator: torch.Generator) -> Any:
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks
    from mmengine.structures import InstanceData
    side = torch.tensor([max(width // 4, 1), max(height // 4, 1)])
    corners = (torch.rand(OBJECTS, 2, generator=generator) * (torch.tensor([width, height]) - side)).floor()
    masks = np.zeros((OBJECTS, height, width), np.uint8)
    for mask, (x, y) in zip(masks, corners.int().tolist(), strict=True):
        mask[y:y + int(side[1]), x:x + int(side[0])] = 1
    sample = DetDataSample(metainfo=_meta(height, width))
    sample.gt_instances = InstanceData(
        bboxes=torch.cat([corners, corners + side], 1), masks=BitmapMasks(masks, height, width),
        labels=torch.randint(0, _classes(model), (OBJECTS, ), generator=generator))
    sample.ignored_instances = InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long))
    return sample


def _segmentation(model: nn.Module, height: int, width: int, generator: torch.Generator) -> Any:
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample
    blocks = torch.randint(0, _classes(model), (1, 1, 4, 4), generator=generator).float()
    labels = torch.nn.functional.interpolate(blocks, (height, width), mode='nearest')[0].long()
    return SegDataSample(metainfo=_meta(height, width) | dict(padding_size=[0, 0, 0, 0]),
                         gt_sem_seg=PixelData(data=labels))


def _classification(model: nn.Module, height: int, width: int, generator: torch.Generator) -> Any:
    from mmpretrain.structures import DataSample
    sample = DataSample(metainfo=_meta(height, width) | dict(num_classes=_classes(model)))
    return sample.set_gt_label(torch.randint(0, _classes(model), (1, ), generator=generator))


def _classes(model: nn.Module) -> int:
    """Classes of the first head that knows them."""
    for module in model.modules():
        count = getattr(module, 'num_classes', None)
        if isinstance(count, int) and count > 0 and module is not getattr(model, 'rpn_head', None):
            return count
    raise UserError(f'{type(model).__name__} has no head with num_classes; use --part features')
