"""Memory of a training step: what autograd keeps, and the peak."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextmanager
def saved_storages(model: nn.Module) -> Iterator[dict[int, int]]:
    """Record the memory saved by autograd for the backward pass as ``{storage: bytes}``.

    Parameters and buffers are excluded. Tensors saved by several operations count once.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}
    alive: list[Any] = []  # prevents reuse of addresses

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


class PeakCounter(TorchDispatchMode):
    """Context manager for the largest number of bytes of all tensors that operators made inside it, at any time.

    Counts storages from the operator that made them until they are freed; temporary memory inside an operator is not
    seen. ``peak`` has the bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live = 0
        self._known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        before = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
                self._add(leaf.untyped_storage(), before)
        return out

    def _add(self, storage: Any, before: set[int]) -> None:
        key = storage._cdata
        if key in before or key in self._known:
            return
        size = storage.nbytes()
        self._known[key] = weakref.ref(storage, lambda _: self._drop(key, size))
        self._live += size
        self.peak = max(self.peak, self._live)

    def _drop(self, key: int, size: int) -> None:
        if self._known.pop(key, None) is not None:
            self._live -= size


def peak_of(step: Callable[[], object], device: str) -> int:
    """The largest memory of a step beyond what was allocated before it, in bytes: by the allocator on CUDA, by
    :class:`PeakCounter` on other devices."""
    if device.startswith('cuda'):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with PeakCounter() as counter:
        step()
    return counter.peak
