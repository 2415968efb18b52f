"""Modules registered in :data:`mmkcla.registry.MODELS`. Stereo models live in :mod:`mmkcla.stereo`."""
from importlib.util import find_spec

from . import backbones, losses, plugins

__all__ = ['backbones', 'losses', 'plugins']
if find_spec('mmdet') or find_spec('mmseg'):  # both are optional for classification
    from . import necks
    __all__ += ['necks']
if find_spec('mmseg'):  # optional for detection
    from . import decode_heads, segmentors
    __all__ += ['decode_heads', 'segmentors']
