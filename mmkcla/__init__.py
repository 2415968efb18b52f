"""mmkcla: layer attention (KCLA and the methods it is compared with) for OpenMMLab.

Importing this package imports no OpenMMLab library; the registry (``mmkcla.registry``) is found by mmengine when a
config says ``type='mmkcla.…'``.
"""
from .version import __version__

__all__ = ['__version__', 'use_torchvision_ops']


def use_torchvision_ops() -> bool:
    """Let torchvision stand in for mmcv's compiled operators where they are missing (for notebooks; tools do it).

    Call it before importing ``mmdet``. Returns True if the stand-in is active, False if a compiled mmcv is used.
    """
    from .ops import install
    return install()
