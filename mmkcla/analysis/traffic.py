"""Memory traffic and number of operators of a forward or backward pass: exact, and the same on every machine."""
from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ALLOCATIONS = {'empty', 'empty_like', 'empty_strided', 'new_empty', 'new_empty_strided', 'empty_permuted'}


class TrafficCounter(TorchDispatchMode):
    """Context manager that counts the operators run by torch, forward or backward, and the bytes that they touch.

    Views and allocations are left out. ``calls``: how many operators ran; on a GPU these are kernel launches.
    ``traffic``: bytes of their tensor inputs and outputs, a tensor counted no larger than its storage (an expanded one
    is read from less memory than it has elements); on a GPU this is the time of everything but large convolutions and
    matrix products. A lower bound for operators that read an input twice, such as batch norms in training.
    ``calls_by_name`` and ``traffic_by_name`` have both by operator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls_by_name: Counter[str] = Counter()
        self.traffic_by_name: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        """Number of operators."""
        return self.calls_by_name.total()

    @property
    def traffic(self) -> int:
        """Bytes of all inputs and outputs."""
        return self.traffic_by_name.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, Tensor)]
        if tensors and not (func.is_view or name in _ALLOCATIONS):
            self.calls_by_name[name] += 1
            self.traffic_by_name[name] += sum(_bytes(tensor) for tensor in tensors)
        return out


def _bytes(tensor: Tensor) -> int:
    size = tensor.numel() * tensor.element_size()
    return size if tensor.layout is not torch.strided else min(size, tensor.untyped_storage().nbytes())
