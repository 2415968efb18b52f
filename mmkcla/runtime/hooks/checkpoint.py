"""Checkpoints that are whole or absent, whenever a training is cut off."""
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook

from ...errors import UserError
from ...registry import HOOKS
from ...utils.files import PART_SUFFIX, whole_file
from ...utils.text import did_you_mean
from ...weights.plain import plain

EARLIER = 'earlier'  # folder of the best checkpoints of trainings before this one
_BACKEND = 'mmkcla_whole_file'


class WholeFileBackend(LocalBackend):
    """The local file system, where a file takes its name only when it is complete and on the disk."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write ``obj`` beside ``filepath``, then rename."""
        with whole_file(filepath) as file:
            file.write(obj)


register_backend(_BACKEND, WholeFileBackend, force=True)


def check_save_best(wanted: Sequence[str], metrics: Iterable[str]) -> None:
    """See that the metrics by which the best checkpoint is chosen are among those there are.

    Raises:
        UserError: naming the first that is not, and all there are.
    """
    there = list(metrics)
    for name in wanted:
        if name not in there:
            raise UserError(f'default_hooks.checkpoint.save_best={name!r} is not a metric of the validation'
                            f'{did_you_mean(name, there)}; '
                            f'there are: {", ".join(there) or "none"}')


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """mmengine's ``CheckpointHook`` (same arguments, same names of files) for the local file system.

    mmengine opens the final name and writes into it, and deletes the old checkpoint before it writes the new one; a
    training that is cut off in between leaves half a file, or none. Here a checkpoint appears complete, and what it
    replaces is deleted after that.
    """

    def before_train(self, runner: Any) -> None:
        """Choose the backend; remove parts of files that a killed run left behind."""
        out_dir = str(self.out_dir or runner.work_dir)
        if self.file_client_args is None and self.backend_args is None and '://' not in out_dir:
            self.backend_args = dict(backend=_BACKEND)
        super().before_train(runner)
        if is_main_process() and isinstance(self.file_backend, LocalBackend):
            for part in Path(self.out_dir).glob(f'.*.pth.*{PART_SUFFIX}'):
                part.unlink(missing_ok=True)
            if runner.iter == 0:  # not resumed
                self._set_aside(runner)

    def _set_aside(self, runner: Any) -> None:
        """Move the best checkpoints of an earlier training out of the way: beside the new ones nobody tells which is
        which."""
        old = sorted(Path(self.out_dir).glob('best_*.pth'))
        for path in old:
            target, number = path.parent / EARLIER / path.name, 2
            target.parent.mkdir(exist_ok=True)
            while target.exists():
                target, number = target.with_name(f'{path.stem}_{number}.pth'), number + 1
            path.rename(target)
        if old:
            runner.logger.warning(f'{", ".join(path.name for path in old)} of an earlier training moved to '
                                  f'{Path(self.out_dir) / EARLIER}')

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Make everything in the checkpoint plain, so that it loads without running code (``weights_only=True``).

        This hook has a low priority: what other hooks add is in the checkpoint by now.
        """
        for key in checkpoint:
            checkpoint[key] = plain(checkpoint[key])

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict) -> None:
        with self._deletions_last():
            super()._save_checkpoint_with_step(runner, step, meta)

    def _save_best_checkpoint(self, runner: Any, metrics: dict) -> None:
        wanted = [name for name in getattr(self, 'key_indicators', ()) if name != 'auto'] if self.save_best else []
        check_save_best(wanted, metrics)
        with self._deletions_last():
            super()._save_best_checkpoint(runner, metrics)

    @contextmanager
    def _deletions_last(self) -> Iterator[None]:
        """Put off what the block deletes until it has saved; if it fails, nothing is deleted."""
        remove, outdated = self.file_backend.remove, []
        self.file_backend.remove = outdated.append
        try:
            yield
        finally:
            self.file_backend.remove = remove
        best = getattr(self, 'best_ckpt_path_dict', {}).values()
        current = {self.last_ckpt, getattr(self, 'best_ckpt_path', None), *best}
        for path in outdated:
            if path not in current:  # a name that was written anew
                remove(path)
