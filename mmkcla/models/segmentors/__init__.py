"""Wrappers of mmseg's segmentors."""
from .binary_tta import BinarySegTTAModel

__all__ = ['BinarySegTTAModel']
