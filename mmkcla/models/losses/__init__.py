"""Losses that the hosts lack."""
from .binary_dice import BinaryDiceLoss

__all__ = ['BinaryDiceLoss']
