"""Imports every data set that registers in :data:`mmkcla.registry.DATASETS`."""
from importlib.util import find_spec

from .classification import digits  # noqa: F401

if find_spec('mmseg'):  # classification does not need it
    from .segmentation import binary_seg  # noqa: F401
