"""Store and restore what an exact resume needs beyond mmengine's training state."""
from typing import Any

from mmengine.hooks import Hook

from ...registry import HOOKS
from ...utils.text import note
from ..exact.inexact import reasons
from ..exact.state import (
    KEY,
    State,
    all_rank_states,
    changes,
    damaged,
    rank_state,
    restore_rank,
    restore_run,
    run_state,
)
from ..wrappers import between_steps, optim_wrappers


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Add the entry ``exact_resume`` to checkpoints with an optimizer state, and restore it.

    The loops of :mod:`mmkcla.runtime.loops` register this hook themselves, and call :meth:`restore`.
    """

    priority = 'NORMAL'

    def __init__(self) -> None:
        self._ranks: list[State] | None = None
        self._loaded: State | None = None
        self._source = ''
        self._resumed = False
        self._validated = 0

    def gather(self, runner: Any) -> None:
        """Collect the state of all ranks for the next checkpoint; all of them must call it."""
        self._ranks = all_rank_states(runner)

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Add the state."""
        if 'optimizer' not in checkpoint or not hasattr(runner.train_loop, 'exact'):
            return
        ranks, self._ranks = self._ranks or [rank_state(runner)], None
        loop, epoch = runner.train_loop, checkpoint.get('meta', {}).get('epoch')
        names = {name: type(one.optimizer).__name__ for name, one in optim_wrappers(runner.optim_wrapper).items()}
        checkpoint[KEY] = run_state(runner, ranks, self._validated) | {
            'done': loop.done if epoch == loop.epoch else 0, 'optimizers': names}

    def after_load_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Keep the state of a checkpoint that the training is resumed from, until the first step."""
        if runner._resume:
            self._resumed, self._loaded, self._source = True, checkpoint.get(KEY), str(runner._load_from)

    def before_train(self, runner: Any) -> None:
        """Restore the data order; say if the resume is not exact, and why."""
        if not self._resumed:
            return
        state = self._loaded
        if state is None:
            found = ['the checkpoint has no entry exact_resume']
        elif not isinstance(state, dict):
            raise damaged(self._source, TypeError())
        else:
            found = changes(runner, state, self._source)
            self._validated = restore_run(runner, state, self._source)
            if found:
                self._loaded = None
        found += reasons(runner)
        if self._loaded is None and between_steps(runner.optim_wrapper):
            found.append('the gradients of the last iterations, which were not used by the optimizer, are lost')
        if found:
            note(f'resume is not exact: {"; ".join(found)}')

    def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
        """Record the validation."""
        if hasattr(runner._train_loop, 'exact'):
            self._validated = runner.iter

    def restore(self, runner: Any) -> None:
        """Restore random numbers and accumulated gradients, once, right before the training continues."""
        state, self._loaded = self._loaded, None
        if state is not None:
            restore_rank(runner, state, self._source)

    def validation_pending(self, runner: Any) -> bool:
        """Whether this is a resumed run whose checkpoint was saved before the validation at the same iteration."""
        return self._resumed and self._validated != runner.iter

    def done_in_epoch(self, batches: int) -> int | None:
        """Return the number of batches of the current epoch that are done in the checkpoint; None if it is not
        recorded, or an epoch had another number of batches."""
        state = self._loaded or {}
        return state.get('done') if state.get('batches') == batches else None
