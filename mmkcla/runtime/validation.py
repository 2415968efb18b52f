"""When a training loop validates."""
from typing import Any


def validation_follows(loop: Any, done: int, last: int) -> bool:
    """Whether mmengine's training loops run a validation after ``done`` of ``last`` epochs (or iterations, for a loop
    that counts them)."""
    return (loop.runner._val_loop is not None and done >= loop.val_begin
            and (done % loop.val_interval == 0 or done == last))
