"""Estimate the time of a training from a few of its iterations."""
from __future__ import annotations

from bisect import bisect
from typing import Any

from mmengine.runner import IterBasedTrainLoop

from ..utils.durations import duration
from ..utils.text import plural
from .validation import validation_follows


def validations(loop: Any, begin: int = 0) -> int:
    """Return the number of validations of a built training loop after ``begin`` of its epochs (or iterations)."""
    last = loop.max_iters if isinstance(loop, IterBasedTrainLoop) else loop.max_epochs
    before, milestones = loop.val_interval, getattr(loop, 'dynamic_milestones', None)
    found = 0
    try:
        for done in range(begin + 1, last + 1):
            if milestones:
                loop.val_interval = loop.dynamic_intervals[bisect(milestones, done + 1) - 1]
            found += validation_follows(loop, done, last)
    finally:
        loop.val_interval = before
    return found


def sum_text(iterations: int, step: float, count: int, validation: float | None) -> str:
    """Return ``120 iterations × 0.35 s + 3 validations × 12 s``; validations of unknown length are only counted."""
    text = f'{plural(iterations, "iteration")} × {duration(step)}'
    if count:
        text += f' + {plural(count, "validation")}' + ('' if validation is None else f' × {duration(validation)}')
    return text
