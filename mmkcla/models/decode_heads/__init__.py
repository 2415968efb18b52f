"""Decode heads for mmseg."""
from .unet_head import UNetHead

__all__ = ['UNetHead']
