"""The state of methods that keep data of every layer of a stage."""
from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Cache(NamedTuple):
    """A vector ``(B, C)`` and a map ``(B, C, H, W)`` of each layer so far, first layer first.

    MRLA-base and DLA-B: keys and values. The standard layer attention: pooled maps and maps, which every layer projects
    with its own weights.
    """

    vectors: tuple[Tensor, ...] = ()
    maps: tuple[Tensor, ...] = ()

    def append(self, vector: Tensor, map_: Tensor) -> Cache:
        """The cache with one more layer."""
        return Cache((*self.vectors, vector), (*self.maps, map_))

    def pack(self) -> tuple[Tensor, ...]:
        """A flat tuple: vector and map of each layer in turn."""
        return tuple(entry for pair in zip(self.vectors, self.maps, strict=True) for entry in pair)

    @classmethod
    def unpack(cls, state: tuple[Tensor, ...]) -> Cache:
        """The inverse of :meth:`pack`."""
        return cls(tuple(state[::2]), tuple(state[1::2]))
