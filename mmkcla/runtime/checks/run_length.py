"""The length of a training, in epochs and iterations."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunLength:
    """The length of a training: whether its loop counts epochs, their number, all iterations, and those per epoch.
    None is unknown."""

    by_epoch: bool
    epochs: int | None = None
    iterations: int | None = None
    per_epoch: int | None = None

    def units(self, by_epoch: bool) -> float | None:
        """Return the length in epochs or iterations."""
        if not by_epoch:
            return self.iterations
        if self.by_epoch:
            return self.epochs
        return self.iterations / self.per_epoch if self.iterations and self.per_epoch else None
