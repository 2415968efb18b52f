"""Transforms for the hosts' data pipelines, as ``type='mmkcla.LoadImageFromFile'``."""
from .binary_mask import LoadBinaryMask
from .loading import LoadImageFromFile

__all__ = ['LoadBinaryMask', 'LoadImageFromFile']
