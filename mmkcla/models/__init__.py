"""What registers in :data:`mmkcla.registry.MODELS`."""
from . import backbones  # noqa: F401
