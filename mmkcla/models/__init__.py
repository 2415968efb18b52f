"""Modules registered in :data:`mmkcla.registry.MODELS`. Stereo models live in :mod:`mmkcla.stereo`."""
from importlib.util import find_spec

from . import backbones, losses, plugins
from .deploy import switch_to_deploy

__all__ = ['backbones', 'losses', 'plugins', 'switch_to_deploy']
if find_spec('mmdet') or find_spec('mmseg'):  # both are optional for classification
    from . import necks
    __all__ += ['necks']
if find_spec('mmseg'):  # optional for detection
    from . import decode_heads, segmentors
    __all__ += ['decode_heads', 'segmentors']
