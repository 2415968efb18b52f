"""Compare an exported file with the model it was made from."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.dataset import pseudo_collate
from torch import Tensor
from torch.nn import functional as F

from ..inference.base import Predictor
from .formats import Run
from .modules import ImageModel, loads_rgb

TOLERANCE = 1e-4


def network_image(predictor: Predictor, data: dict) -> Tensor:
    """The image that a prepared sample holds, as the exported model takes it: ``(1, C, H, W)``, RGB, 0 to 255."""
    image = data['inputs'].float()
    if image.shape[0] == 3 and not loads_rgb(predictor):
        image = image.flip(0)
    return image[None].contiguous()


@torch.no_grad()
def host_output(predictor: Predictor, module: ImageModel, data: dict) -> list[Tensor]:
    """What the host computes for a prepared sample by its own ``test_step``, at the size of the network's input."""
    model = predictor.model
    batch = pseudo_collate([data])
    if module.kind == 'features':
        features = model.extract_feat(model.data_preprocessor(batch, False)['inputs'])
        return list(features) if isinstance(features, (tuple, list)) else [features]
    if module.kind == 'classification':
        return [model.test_step(batch)[0].pred_score[None]]
    data['data_samples'].set_metainfo(dict(ori_shape=tuple(data['inputs'].shape[1:])))
    logits = model.test_step(batch)[0].seg_logits.data[None].float()
    return [logits if model.out_channels == 1 else logits.softmax(1)]  # mmseg stores the sigmoid of one channel


def largest_difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The largest difference of two lists of outputs, relative to the largest value of each where that exceeds 1.

    Different shapes, and values that are not finite, are infinitely different.
    """
    if [tuple(out.shape) for out in one] != [tuple(out.shape) for out in other]:
        return float('inf')
    largest = 0.
    for left, right in zip(one, other, strict=True):
        left, right = left.detach(), right.detach()
        difference = float((left - right).abs().max() / right.abs().max().clamp(min=1))
        largest = max(largest, difference if difference == difference else float('inf'))
    return largest


def trials(image: Tensor, divisor: int, axes: Sequence[int]) -> dict[str, Tensor]:
    """Inputs for the comparison: the image; several of it, shifted; another size; as far as ``axes`` allow."""
    found = {f'1 image of {image.shape[2]}×{image.shape[3]}': image}
    if 0 in axes:
        shifted = [image.roll(shift, -1) for shift in (0, 1, 7)]
        found[f'3 images of {image.shape[2]}×{image.shape[3]}'] = torch.cat(shifted)
    if 2 in axes and 3 in axes:
        step = max(divisor, 32)
        larger = F.pad(image, (0, 2 * step, 0, step), mode='replicate')
        found[f'1 image of {larger.shape[2]}×{larger.shape[3]}'] = larger
    return found


def compare(run: Run, reference: Run, inputs: dict[str, Tensor]) -> dict[str, float]:
    """The largest difference for each input."""
    return {name: largest_difference(run(images), reference(images)) for name, images in inputs.items()}


def exceeding(differences: dict[str, Any]) -> list[str]:
    """The inputs whose difference exceeds :data:`TOLERANCE`."""
    return [f'{name}: {value:.1e}' for name, value in differences.items() if not value <= TOLERANCE]
