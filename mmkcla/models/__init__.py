"""What registers in :data:`mmkcla.registry.MODELS`."""
from importlib.util import find_spec

from . import backbones, losses, plugins, stereo

__all__ = ['backbones', 'losses', 'plugins', 'stereo']
if find_spec('mmdet') or find_spec('mmseg'):  # someone who classifies needs neither
    from . import necks
    __all__ += ['necks']
if find_spec('mmseg'):  # someone who detects need not have it
    from . import decode_heads, segmentors
    __all__ += ['decode_heads', 'segmentors']
