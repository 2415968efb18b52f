"""The machine that a plan is for."""
from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import UserError
from ..utils.parallel import processors

_GIB = 2 ** 30
_UNKNOWN_RAM = 8  # GiB, where the system does not report it


@dataclass(frozen=True)
class Machine:
    """What the rules need to know about a machine.

    Attributes:
        gpu: whether it trains on a GPU.
        memory: of the GPU, or else of the machine, in whole GiB (rounded down, at least 1).
        processors: CPU cores that data loading may use.
    """

    gpu: bool
    memory: int
    processors: int = 4

    def __str__(self) -> str:
        return f'{"a GPU" if self.gpu else "a CPU"} with {self.memory} GiB'


def pick_machine(device_memory: float | None = None) -> Machine:
    """A GPU of ``device_memory`` GiB; without a number this machine's GPU, else its CPU.

    Raises:
        UserError: ``device_memory`` is less than 1.
    """
    if device_memory is not None:
        if not device_memory >= 1:
            raise UserError(f'--device-memory {device_memory:g}: must be at least 1 GiB')
        return Machine(True, int(device_memory))
    import torch
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory
        return Machine(True, max(1, memory // _GIB), processors())
    return Machine(False, _ram(), processors())


def _ram() -> int:
    try:
        return max(1, os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // _GIB)
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_RAM
