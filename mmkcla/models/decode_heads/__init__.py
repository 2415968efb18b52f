"""Decode heads of mmseg's segmentors."""
from .unet_head import UNetHead

__all__ = ['UNetHead']
