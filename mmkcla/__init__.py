"""mmkcla: layer attention (KCLA and the compared methods) for OpenMMLab.

``import mmkcla`` imports neither torch nor any OpenMMLab library. The subpackages (``mmkcla.layers``,
``mmkcla.models``, …) are imported on first use. mmengine finds the registries (:mod:`mmkcla.registry`) when a config
contains ``type='mmkcla.…'``.
"""
import importlib
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:  # imported lazily by ``__getattr__``
    from . import analysis as analysis
    from . import checkpoint as checkpoint
    from . import convert as convert
    from . import datasets as datasets
    from . import errors as errors
    from . import evaluation as evaluation
    from . import layers as layers
    from . import models as models
    from . import ops as ops
    from . import registry as registry
    from . import runtime as runtime
    from . import stereo as stereo
    from . import weights as weights

PARTS = ('analysis', 'checkpoint', 'convert', 'datasets', 'errors', 'evaluation', 'layers', 'models', 'ops', 'registry',
         'runtime', 'stereo', 'weights')

__all__ = ['__version__', 'config_file', 'load_safely', 'register_all_modules', 'use_torchvision_ops', *PARTS]


def use_torchvision_ops() -> bool:
    """Replace mmcv's compiled operators by those of torchvision if they are missing.

    The commands do this automatically; in a notebook or script, call it before importing ``mmdet``. Returns True if the
    replacement is active, False if a compiled mmcv is used.
    """
    from .ops import install
    return install()


def config_file(name: str) -> str:
    """Return the path of a shipped config, for ``_base_``; see :func:`mmkcla.paths.config_file`."""
    from .paths import config_file
    return config_file(name)


def load_safely() -> None:
    """Make mmengine, the hosts and torch load checkpoints without running code from them; see
    :func:`mmkcla.weights.safe_loading.load_safely`."""
    from .weights.safe_loading import load_safely
    load_safely()


def register_all_modules() -> None:
    """Register all modules of this package at once, instead of mmengine's import on demand.

    mmcv's operators are replaced first if they are missing (:func:`use_torchvision_ops`).
    """
    use_torchvision_ops()
    from . import registry
    for kind in (registry.MODELS, registry.DATASETS, registry.TRANSFORMS, registry.METRICS, registry.HOOKS):
        kind.import_from_location()


def __getattr__(name: str) -> Any:
    if name in PARTS:
        return importlib.import_module(f'.{name}', __name__)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return sorted(__all__)
