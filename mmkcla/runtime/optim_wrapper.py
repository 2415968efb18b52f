"""Mixed precision without a GPU."""
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.optim import OptimWrapper

from ..registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class Bf16OptimWrapper(OptimWrapper):
    """mmengine's ``OptimWrapper`` (same arguments) with autocast to bfloat16 on any device, CPUs included.

    bfloat16 has the range of float32, so no loss scaling is needed. mmengine's ``AmpOptimWrapper`` needs a GPU.
    """

    @contextmanager
    def optim_context(self, model: torch.nn.Module) -> Iterator[None]:
        """Autocast the forward pass of ``model``."""
        device = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(device, dtype=torch.bfloat16):
            yield
