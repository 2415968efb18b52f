"""Dice loss for heads with one channel (sigmoid)."""
from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...registry import MODELS


@MODELS.register_module()
class BinaryDiceLoss(nn.Module):
    """1 − (2 Σ p·y + s)/(Σ p + Σ y + s) with p = sigmoid(logit), computed per image and averaged over the batch.

    mmseg's ``DiceLoss`` does not work for heads with one channel: it compares the prediction with the indicator of the
    *background*.

    Args:
        smooth: smoothing term s.
        loss_weight: weight of the loss.
        loss_name: name in the log. Only names starting with ``loss_`` are added to the total loss.
    """

    def __init__(self, smooth: float = 1., loss_weight: float = 1., loss_name: str = 'loss_dice') -> None:
        super().__init__()
        self.smooth = smooth
        self.loss_weight = loss_weight
        self.loss_name = loss_name

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = 255,
                **kwargs: Any) -> Tensor:
        """Compute the loss, a scalar.

        Args:
            pred: logits ``(B, 1, H, W)``.
            target: labels ``(B, H, W)``: 0, 1 or ``ignore_index``.
            weight: pixel weights (from a pixel sampler), applied to both prediction and label.
            ignore_index: label of the pixels to ignore.
        """
        probability = pred.squeeze(1).float().sigmoid()
        valid = (target != ignore_index).to(probability.dtype)
        if weight is not None:
            valid = valid * weight
        truth = (target == 1).to(probability.dtype) * valid
        probability = probability * valid
        both = (probability * truth).flatten(1).sum(1)
        each = probability.flatten(1).sum(1) + truth.flatten(1).sum(1)
        return self.loss_weight * (1 - (2 * both + self.smooth) / (each + self.smooth)).mean()
