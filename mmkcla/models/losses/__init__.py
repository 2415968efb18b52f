"""Losses missing from OpenMMLab."""
from .binary_dice import BinaryDiceLoss

__all__ = ['BinaryDiceLoss']
