"""Wrappers for mmseg segmentors."""
from .binary_tta import BinarySegTTAModel

__all__ = ['BinarySegTTAModel']
