"""Dice loss of a one-channel (sigmoid) head."""
from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...registry import MODELS


@MODELS.register_module()
class BinaryDiceLoss(nn.Module):
    """1 − (2 Σ p·y + s)/(Σ p + Σ y + s) with p = sigmoid(logit), per image, averaged over the batch.

    mmseg's own ``DiceLoss`` turns the labels of a one-channel head into the indicator of the *background*, and so pulls
    the prediction the wrong way; this one is for such heads.

    Args:
        smooth: s.
        loss_weight: factor of the loss.
        loss_name: its name in the log; one that starts with ``loss_`` takes part in the backward pass.
    """

    def __init__(self, smooth: float = 1., loss_weight: float = 1., loss_name: str = 'loss_dice') -> None:
        super().__init__()
        self.smooth = smooth
        self.loss_weight = loss_weight
        self.loss_name = loss_name

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = 255,
                **kwargs: Any) -> Tensor:
        """Logits ``(B, 1, H, W)`` and labels ``(B, H, W)`` of 0, 1 and ``ignore_index`` to a number.

        ``weight`` (a pixel sampler's) multiplies both prediction and label.
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
