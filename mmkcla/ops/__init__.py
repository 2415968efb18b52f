"""The torchvision stand-in for mmcv's compiled operators."""
from .torchvision_ext import install

__all__ = ['install']
