"""What registers in :data:`mmkcla.registry.MODELS`, except for stereo (:mod:`mmkcla.stereo`)."""
from importlib.util import find_spec

from . import backbones, losses, plugins

__all__ = ['backbones', 'losses', 'plugins']
if find_spec('mmdet') or find_spec('mmseg'):  # classification needs neither
    from . import necks
    __all__ += ['necks']
if find_spec('mmseg'):  # detection does not need it
    from . import decode_heads, segmentors
    __all__ += ['decode_heads', 'segmentors']
