"""What registers in :data:`mmkcla.registry.MODELS`."""
from importlib.util import find_spec

from . import backbones, losses

__all__ = ['backbones', 'losses']
if find_spec('mmseg'):  # someone who detects need not have it
    from . import decode_heads, segmentors
    __all__ += ['decode_heads', 'segmentors']
