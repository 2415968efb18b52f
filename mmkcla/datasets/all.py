"""What registers in :data:`mmkcla.registry.DATASETS`."""
from importlib.util import find_spec

from . import digits, stereo  # noqa: F401

if find_spec('mmseg'):  # someone who classifies need not have it
    from . import binary_seg  # noqa: F401
