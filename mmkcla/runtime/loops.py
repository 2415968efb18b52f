"""Training loops that continue an interrupted run exactly: in the middle of an epoch, with the same data and random
numbers."""
from collections.abc import Iterator
from typing import Any

from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from ..registry import LOOPS
from ..utils.text import note
from .exact.samples import number_samples, prepare_loader
from .hooks.exact_resume import ExactResumeHook
from .validation import validation_follows


class _Exact:
    """What both loops share."""

    runner: Any
    dataloader: Any

    def _set_up(self) -> None:
        prepare_loader(self.dataloader, self.runner.seed)
        self.exact = number_samples(self.dataloader, self.runner.seed)
        self.resume_hook = _hook_of(self.runner)

    def _start(self, epoch: int, skip: int, endless: bool = False) -> Iterator[Any]:
        """Return an iterator over batches without the first ``skip``."""
        if self.exact is not None:
            self.exact.seed = self.runner.seed  # resuming sets it after the loop is built
            self.exact.start(epoch, skip, endless)
            return iter(self.dataloader)
        batches = self._stream(endless)
        for _ in range(skip):  # a stream has no other way
            next(batches, None)
        return batches

    def _stream(self, endless: bool) -> Iterator[Any]:
        while True:
            empty = True
            for batch in self.dataloader:
                empty = False
                yield batch
            if not endless or empty:
                return

    def _validate_first(self, due: bool, unit: str, done: int) -> None:
        """Run the validation that an interrupted run has not finished: its checkpoint was written before it."""
        if due and self.resume_hook.validation_pending(self.runner):
            note(f'the checkpoint was written before the validation of {unit} {done}; validating first')
            self.runner.val_loop.run()


def _hook_of(runner: Any) -> ExactResumeHook:
    """Return the hook of the runner; register it if there is none."""
    hook = next((one for one in runner.hooks if isinstance(one, ExactResumeHook)), None)
    if hook is None:
        hook = ExactResumeHook()
        runner.register_hook(hook)
    return hook


@LOOPS.register_module()
class ExactEpochLoop(_Exact, EpochBasedTrainLoop):
    """mmengine's ``EpochBasedTrainLoop`` (same arguments) which also resumes in the middle of an epoch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._set_up()
        self._skip = 0  # batches of the next epoch that are done
        self.done = 0  # batches of the current one

    def run(self) -> Any:
        """Train; see :class:`mmengine.runner.EpochBasedTrainLoop`."""
        self.runner.call_hook('before_train')
        recorded = self.resume_hook.done_in_epoch(len(self.dataloader))
        self._skip = self._done_in_epoch(recorded)
        if self._iter and not self._skip:  # resumed between two epochs
            self.resume_hook.restore(self.runner)
            self._decide_current_val_interval()
            ended = self._iter == self._epoch * len(self.dataloader) if recorded is None else not recorded
            self._validate_first(ended and self._validates(), 'epoch', self._epoch)
        while self._epoch < self._max_epochs and not self.stop_training:
            self.run_epoch()
            self._decide_current_val_interval()
            if self._validates():
                self.runner.val_loop.run()
        self.runner.call_hook('after_train')
        return self.runner.model

    def run_epoch(self) -> None:
        """Train for one epoch, or the rest of one."""
        self.runner.call_hook('before_train_epoch')
        self.runner.model.train()
        skip, self._skip = self._skip, 0
        batches = self._start(self._epoch, skip)
        if skip:
            self.resume_hook.restore(self.runner)
        self.done = skip
        for number, batch in enumerate(batches, skip):
            self.done = number + 1  # for the hooks, which save checkpoints
            self.run_iter(number, batch)
        self.runner.call_hook('after_train_epoch')
        self._epoch, self.done = self._epoch + 1, 0

    def _done_in_epoch(self, recorded: int | None) -> int:
        """Return the number of finished iterations of this epoch; 0, with a note, if it is unknown since the length of
        an epoch has changed."""
        length = len(self.dataloader)
        if not self._iter or self._epoch >= self._max_epochs:
            return 0
        done = self._iter - self._epoch * length if recorded is None else recorded
        if 0 <= done <= length:
            return done
        note(f'iteration {self._iter} is not in epoch {self._epoch + 1} of {length} batches: the data of this epoch '
             'start from the beginning')
        return 0

    def _validates(self) -> bool:
        return validation_follows(self, self._epoch, self._max_epochs)


@LOOPS.register_module()
class ExactIterLoop(_Exact, IterBasedTrainLoop):
    """mmengine's ``IterBasedTrainLoop`` (same arguments) with the same data after a resume."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._set_up()
        self.done = 0  # its only epoch has no batches to count

    def run(self) -> Any:
        """Train; see :class:`mmengine.runner.IterBasedTrainLoop`."""
        self.runner.call_hook('before_train')
        self.runner.call_hook('before_train_epoch')
        skip = 0 if getattr(self, 'fast_forward_on_resume', False) else self._iter
        self.dataloader_iterator = self._start(0, skip, endless=True)
        if self._iter:
            self.resume_hook.restore(self.runner)
            self._decide_current_val_interval()
            self._validate_first(self._validates(), 'iteration', self._iter)
        while self._iter < self._max_iters and not self.stop_training:
            self.runner.model.train()
            self.run_iter(next(self.dataloader_iterator))
            self._decide_current_val_interval()
            if self._validates():
                self.runner.val_loop.run()
        self.runner.call_hook('after_train_epoch')
        self.runner.call_hook('after_train')
        return self.runner.model

    def _validates(self) -> bool:
        return validation_follows(self, self._iter, self._max_iters)
