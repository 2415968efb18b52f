"""Transforms for the hosts' data pipelines, as ``type='mmkcla.LoadImageFromFile'``."""
from .binary_mask import LoadBinaryMask
from .loading import LoadImageFromFile
from .stereo import (
    LoadDisparity,
    LoadStereoPair,
    PackStereoInputs,
    StereoColorJitter,
    StereoRandomCrop,
    StereoVerticalFlip,
)

__all__ = ['LoadBinaryMask', 'LoadDisparity', 'LoadImageFromFile', 'LoadStereoPair', 'PackStereoInputs',
           'StereoColorJitter', 'StereoRandomCrop', 'StereoVerticalFlip']
