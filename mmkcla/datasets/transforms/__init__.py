"""Transforms for the data pipelines of the host libraries, e.g. ``type='mmkcla.LoadImageFromFile'``."""
from .binary_mask import LoadBinaryMask
from .inferencer_loader import InferencerLoader, LoadImageFromNDArray
from .loading import LoadImageFromFile

__all__ = ['InferencerLoader', 'LoadBinaryMask', 'LoadImageFromFile', 'LoadImageFromNDArray']
