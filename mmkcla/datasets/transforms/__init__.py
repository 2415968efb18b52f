"""Transforms for the hosts' data pipelines, as ``type='mmkcla.LoadImageFromFile'``."""
from .loading import LoadImageFromFile

__all__ = ['LoadImageFromFile']
