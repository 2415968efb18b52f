"""Atomic checkpoints: an interrupted training never leaves a partial file."""
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.logging import print_log

from ...errors import NonFiniteError, UserError
from ...evaluation.directions import main_metric, rule_for
from ...evaluation.names import nearest_name
from ...registry import HOOKS
from ...utils.files import whole_file
from ...utils.parts import PART_SUFFIX, remove_parts
from ...utils.text import listed
from ...weights.checksum import write_sealed
from ...weights.finite import WEIGHTS, all_finite, non_finite_entries, tensors_in
from ...weights.method_record import KEY, make_record
from ...weights.plain_values import plain
from ..wrappers import inner_model

EARLIER = 'earlier'  # folder for the best checkpoints of earlier trainings
INTERRUPTED = 'interruption_checkpoint'  # in the message hub: the last checkpoint written in the middle of an epoch
_BACKEND = 'mmkcla_whole_file'


class WholeFileBackend(LocalBackend):
    """Local file system with atomic writes: a file gets its name only after it is complete and on disk."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write ``obj`` to a temporary file next to ``filepath``, then rename it. Checkpoints get a checksum."""
        with whole_file(filepath) as file:
            write_sealed(file, obj)


register_backend(_BACKEND, WholeFileBackend, force=True)


def check_save_best(wanted: Sequence[str], metrics: Iterable[str]) -> None:
    """Check that the metrics of ``save_best`` exist.

    Raises:
        UserError: the first one that does not, with the available metrics.
    """
    available = list(metrics)
    for name in wanted:
        if name not in available:
            raise UserError(f'default_hooks.checkpoint.save_best={name!r} is not a validation metric'
                            f'{nearest_name(name, available)}; '
                            f'available: {", ".join(available) or "none"}')


def require_folder(hook: CheckpointHook) -> None:
    """Check that the folder of the checkpoints still exists, before it would be created again.

    Raises:
        UserError: it was removed.
    """
    if isinstance(hook.file_backend, LocalBackend) and not Path(hook.out_dir).is_dir():
        raise UserError(f'the folder {hook.out_dir} was removed during the training; its checkpoints are lost')


def remove_interrupted(hook: CheckpointHook, name: Any) -> None:
    """Delete the checkpoint of an interruption; its name comes from a file, so that it may be any text."""
    if isinstance(hook.file_backend, LocalBackend) and is_main_process() and re.fullmatch(r'iter_\d+\.pth', str(name)):
        (Path(hook.out_dir) / name).unlink(missing_ok=True)


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """mmengine's ``CheckpointHook`` (same arguments and file names) with atomic writes on the local file system.

    mmengine writes directly to the final file name, and deletes the old checkpoint before it writes the new one. An
    interruption in between leaves a partial file or none. This hook renames a checkpoint to its final name when it is
    complete, and deletes the old one afterwards.
    """

    file_backend = LocalBackend()  # until before_train chooses one: a validation may come without a training

    def _init_rule(self, rules: list, key_indicators: list[str]) -> None:
        """Like mmengine's, with the directions of :mod:`mmkcla.evaluation.directions`. Metrics in ``greater_keys`` and
        ``less_keys``, if given, are left to mmengine."""
        custom = self.greater_keys != self._default_greater_keys or self.less_keys != self._default_less_keys
        if not custom:
            given = rules * len(key_indicators) if len(rules) == 1 else rules
            rules = [rule if name == 'auto' else self._rule(name, rule)
                     for name, rule in zip(key_indicators, given, strict=True)]
        super()._init_rule(rules, key_indicators)

    @staticmethod
    def _rule(metric: str, given: str | None) -> str:
        rule, changed = rule_for(metric, given, 'default_hooks.checkpoint')
        if changed:
            print_log(changed, 'current', logging.WARNING)
        return rule

    def before_train(self, runner: Any) -> None:
        """Select the backend; remove temporary files left behind by a killed run."""
        out_dir = str(self.out_dir or runner.work_dir)
        if self.file_client_args is None and self.backend_args is None and '://' not in out_dir:
            self.backend_args = dict(backend=_BACKEND)
        super().before_train(runner)
        if is_main_process() and isinstance(self.file_backend, LocalBackend):
            remove_parts(Path(runner.work_dir), recursive=True)
            for name in ('.*.pth', '.curves.csv', '.curves.png', '.last_checkpoint'):  # what only a training writes
                for part in Path(self.out_dir).glob(f'{name}.*{PART_SUFFIX}'):
                    part.unlink(missing_ok=True)
            if runner.iter == 0:  # not resumed
                self._set_aside(runner)
        if isinstance(self.file_backend, LocalBackend):
            self._rebase(runner)

    def _rebase(self, runner: Any) -> None:
        """Replace the paths stored in a resumed checkpoint by those of this folder.

        A work dir may have been copied; the files of the original must not be deleted.
        """
        def here(stored: Any) -> str | None:
            path = Path(self.out_dir) / Path(str(stored)).name
            return str(path) if stored and path.is_file() else None

        if getattr(self, 'best_ckpt_path', None):
            self.best_ckpt_path = here(self.best_ckpt_path)
        for name, path in getattr(self, 'best_ckpt_path_dict', {}).items():
            self.best_ckpt_path_dict[name] = here(path)
        for name, value in list(runner.message_hub.runtime_info.items()):
            if name == 'last_ckpt' or name.startswith('best_ckpt'):
                runner.message_hub.update_info(name, here(value))

    def _is_own(self, path: str) -> bool:
        """Whether ``path`` is in the folder of this hook and has a name that it gives."""
        name = re.escape(self.filename_tmpl).replace(r'\{\}', r'\d+')
        return (not isinstance(self.file_backend, LocalBackend)
                or Path(path).parent.resolve() == Path(self.out_dir).resolve()
                and re.fullmatch(rf'(best_.*)?{name}', Path(path).name) is not None)

    def _set_aside(self, runner: Any) -> None:
        """Move the best checkpoints of an earlier training to a separate folder, so that they are not confused with the
        new ones."""
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
        """Add the record of the methods (:mod:`mmkcla.weights.method_record`). Make everything in the checkpoint plain,
        so that it loads without running code (``weights_only=True``). Refuse NaN and infinite values.

        This hook has a low priority: what other hooks add is in the checkpoint by now.
        """
        meta = checkpoint.setdefault('meta', {})
        classes = (meta.get('dataset_meta') or {}).get('classes')
        meta[KEY] = make_record(inner_model(runner.model), checkpoint.get('state_dict') or {}, classes)
        for key in checkpoint:
            checkpoint[key] = plain(checkpoint[key])
        self._require_finite(checkpoint, f'iteration {meta.get("iter", runner.iter)}')

    def _require_finite(self, checkpoint: dict, when: str) -> None:
        """Raise NonFiniteError for NaN or infinite weights or optimizer states; no such checkpoint is written."""
        parts = {key: checkpoint.get(key) or {} for key in (*WEIGHTS, 'optimizer')}
        names = [name for key in WEIGHTS for name in non_finite_entries(parts[key])]
        if not names and not all_finite(tensors_in(parts['optimizer'])):
            names = ['the state of the optimizer']
        if names:
            pointer = Path(self.out_dir) / 'last_checkpoint'
            kept = pointer.read_text(encoding='utf-8').strip() if pointer.is_file() else ''
            kept = f'the last checkpoint is {kept}' if kept else 'there is no earlier checkpoint'
            raise NonFiniteError(f'{when}: no checkpoint written, since there are NaN or infinite values in '
                                 f'{listed(names)}; {kept}; lower the learning rate or clip the gradients '
                                 '(optim_wrapper.clip_grad)')

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict) -> None:
        require_folder(self)
        with self._deletions_last():
            super()._save_checkpoint_with_step(runner, step, meta)
        self._remove_interrupted(runner)

    def _remove_interrupted(self, runner: Any) -> None:
        """Delete the checkpoint of an interruption, which a later one replaces, if the number of files is limited."""
        name = runner.message_hub.runtime_info.get(INTERRUPTED)
        if self.max_keep_ckpts > 0 and Path(str(self.last_ckpt)).name != name:
            remove_interrupted(self, name)

    def _save_best_checkpoint(self, runner: Any, metrics: dict) -> None:
        if self.save_best and self.key_indicators == ['auto']:
            self._choose_metric(runner, metrics)
        wanted = [name for name in getattr(self, 'key_indicators', ()) if name != 'auto'] if self.save_best else []
        check_save_best(wanted, metrics)
        with self._deletions_last():
            super()._save_best_checkpoint(runner, metrics)

    def _choose_metric(self, runner: Any, metrics: dict) -> None:
        chosen = main_metric(metrics)
        if chosen is None:
            raise UserError("default_hooks.checkpoint.save_best='auto': no metric of the validation is known to be "
                            f"better when greater or smaller; set save_best and rule; available: {', '.join(metrics)}")
        self._init_rule([None], [chosen])
        runner.logger.info(f"save_best='auto': {chosen}, rule {self.rules[0]!r}")

    @contextmanager
    def _deletions_last(self) -> Iterator[None]:
        """Postpone deletions until the block has saved; if it fails, delete nothing."""
        remove, outdated = self.file_backend.remove, []
        self.file_backend.remove = outdated.append
        try:
            yield
        finally:
            self.file_backend.remove = remove
        best = getattr(self, 'best_ckpt_path_dict', {}).values()
        current = {self.last_ckpt, getattr(self, 'best_ckpt_path', None), *best}
        for path in outdated:
            if path not in current and self._is_own(path):  # current: a path that was just overwritten
                remove(path)
