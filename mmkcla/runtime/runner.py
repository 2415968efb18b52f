"""mmengine's runner with safe checkpoint loading: checkpoints are compared with the model before they are used."""
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import all_gather_object, get_world_size
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import RUNNERS
from mmengine.runner import IterBasedTrainLoop, Runner

from ..datasets.compare import check_checkpoint_classes
from ..errors import UserError
from ..utils.text import note, one_line, plural
from ..weights.addresses import read_address
from ..weights.matching import compare, initial_line, require, state_dict_for
from ..weights.method_record import (
    ADDED,
    DROPPED,
    REPLACED,
    Difference,
    classes_in,
    differences,
    methods_text,
    require_same_method,
)
from ..weights.safe_loading import load_safely
from .checks.batches import accumulation
from .checks.effects import weight_notes
from .checks.paramwise import paramwise_notes
from .checks.resumed import finished_line, settings_of, unused_line, unused_settings
from .checks.resumed_config import checkpoint_config, deleted_hint, other_settings
from .checks.resumed_state import check_state
from .checks.run_length import RunLength
from .checks.schedules import check_schedules
from .dataloaders import init_worker
from .exact.samples import prepare_loader
from .exact.state import KEY, check_entry
from .hooks.exact_resume import ExactResumeHook
from .hooks.stop import StopHook
from .hosts import short_terminal
from .resume import first_usable, read_resumable, resumable
from .watch import watch_ranks
from .wrappers import inner_model


class CheckedRunner(Runner):
    """A runner that checks and reports what it loads.

    ``required`` sets how much of the model a checkpoint must cover: ``'all'``, ``'most'`` (fine-tuning from weights of
    another data set) or ``'some'`` (``--allow-partial``). Resuming requires ``'all'``.
    """

    required = 'some'
    hint = ''  # appended to the error message
    labels: tuple[Sequence[str], str] | None = None  # class names of the data by label and their config key
    stops = True  # on a signal, with a checkpoint
    partial_allowed = False  # the user asked for weights that do not fit the model (--allow-partial)
    _resuming = False
    _resumed_config: dict[str, Any] = {}  # that of the resumed run
    loaded: dict[str, Any] = {}  # epoch and iteration of the last loaded checkpoint, if known

    def load_checkpoint(self, filename: str, map_location: Any = 'cpu', strict: bool = False,
                        revise_keys: list | None = None) -> dict:
        """Load ``filename`` (a path or an address) without running code from it; log how it matches the model.

        Raises:
            UserError: the file cannot be read, or covers less of the model than ``required``.
        """
        checkpoint = self._read_resumed(filename) if self._resuming else read_address(filename)
        model = inner_model(self.model)
        state_dict = state_dict_for(model, checkpoint)
        meta = checkpoint.get('meta') if isinstance(checkpoint.get('meta'), dict) else {}
        self.loaded = {name: meta[name] for name in ('epoch', 'iter') if name in meta}
        report = compare(model, state_dict)
        self.logger.info(f'checkpoint {filename}: {report.summary()}')
        require(report, 'some', filename)
        self._check_methods(filename, differences(model, checkpoint))
        require(report, 'all' if strict else self.required, filename, self.hint)
        if not self._resuming and (line := initial_line(report, filename)):
            note(line)
        if self.labels is not None:
            classes, where = self.labels
            check_checkpoint_classes(classes_in(checkpoint), classes, filename, where)
        if self._resuming:  # nothing of the runner has changed so far
            entry = checkpoint.get(KEY)
            check_state(self, checkpoint, filename, entry.get('optimizers') if isinstance(entry, dict) else None)
        # hooks (EMA) look for the weights under this key and may change them
        checkpoint['state_dict'] = {name: state_dict[name] for name in state_dict if name not in set(report.mismatched)}
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        model.load_state_dict(checkpoint['state_dict'], strict=False)
        self._has_loaded = True
        return checkpoint

    def load_or_resume(self) -> None:
        """Like mmengine's; without a named checkpoint, resume from the newest one in the work dir that can be used.

        Raises:
            UserError: there are checkpoints, but none can be used, or processes have chosen different ones.
        """
        if self._has_loaded or not self._resume or self._load_from is not None:
            super().load_or_resume()
            return
        found = first_usable(Path(self.work_dir), self._resume_from)
        if found is None:
            note(f'resume: no checkpoint in {self.work_dir}; starting from the beginning')
            return
        if get_world_size() > 1 and len(set(names := all_gather_object(found[0].name))) > 1:
            raise UserError(f'--resume: the processes read different checkpoints ({", ".join(names)}) from '
                            f'{self.work_dir}; name one: --resume CHECKPOINT')

    def _resume_from(self, path: Path) -> None:
        self._load_from = str(path)  # hooks read it
        try:
            self.resume(str(path))
        except UserError:
            self._load_from = None
            raise

    def _read_resumed(self, filename: str) -> dict:
        """Read a checkpoint to resume from, and check all that does not depend on the config."""
        checkpoint = read_resumable(filename)
        check_entry(self, checkpoint, filename)
        self._resumed_config = checkpoint_config(checkpoint)
        return checkpoint

    def _check_methods(self, filename: str, found: list[Difference]) -> None:
        """Refuse a checkpoint of another method. Where it need not match completely, report other options and a layer
        attention that only one side has."""
        fits = [one for one in found if self.required == 'all' or one.kind == REPLACED]
        if self.partial_allowed:
            fits = []
        require_same_method(fits, filename, self.hint)
        for _, kind, saved, here in [one for one in found if one not in fits][:1]:
            if kind == DROPPED:
                note(f'checkpoint {filename} {methods_text(saved, here)}; the weights of {saved} are not used')
            elif kind != ADDED:  # what keeps its initial values is reported by name
                self.logger.warning(f'checkpoint {filename} was made with {kind} {saved!r}, the config has {here!r}; '
                                    'the weights are loaded as they are')

    def build_dataloader(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Like mmengine's, but let the worker processes end with this one, and leave signals to it."""
        loader = super().build_dataloader(*args, **kwargs)
        if getattr(loader, 'num_workers', 0):
            loader.worker_init_fn = partial(init_worker, loader.worker_init_fn)
        prepare_loader(loader, self.seed)  # last, so that the training loop sees that it is done
        return loader

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Like mmengine's, but with the state of all ranks. All ranks must call it."""
        hook = next((one for one in self.hooks if isinstance(one, ExactResumeHook)), None)
        if hook is not None and kwargs.get('save_optimizer', True):
            hook.gather(self)
        super().save_checkpoint(*args, **kwargs)

    def train(self) -> torch.nn.Module:
        """Like mmengine's; on a signal, write a checkpoint and stop."""
        if self.stops:
            self.register_hook(StopHook())
        return super().train()

    def build_train_loop(self, loop: Any) -> Any:
        """Like mmengine's, but refuse an epoch without iterations, which would train nothing."""
        built = super().build_train_loop(loop)
        check_iterations(built.dataloader)
        for line in (*check_schedules(self.cfg, run_length(built)), *weight_notes(self.cfg)):
            note(line)
        counts = accumulation(self.cfg.get('optim_wrapper') or {})
        if counts > 1:
            note(f'optim_wrapper.accumulative_counts={counts}: {plural(built.max_iters, "iteration")}, '
                 f'{plural(-(-built.max_iters // counts), "step")} of the optimizer; schedules and intervals count '
                 'iterations')
        return built

    def build_optim_wrapper(self, optim_wrapper: Any) -> Any:
        """Like mmengine's, but name the settings for single parameters that change none."""
        if isinstance(optim_wrapper, dict):
            for line in paramwise_notes(inner_model(self.model), optim_wrapper):
                note(line)
        return super().build_optim_wrapper(optim_wrapper)

    def scale_lr(self, optim_wrapper: Any, auto_scale_lr: dict | None = None) -> None:
        """Like mmengine's, but count the images of all iterations that are accumulated for a step."""
        counts = accumulation(optim_wrapper)
        if counts > 1 and auto_scale_lr and auto_scale_lr.get('enable'):
            base = auto_scale_lr['base_batch_size']
            self.logger.info(f'{counts} iterations are accumulated for a step: the base batch size {base} is divided '
                             f'by {counts}')
            auto_scale_lr = {**auto_scale_lr, 'base_batch_size': base / counts}
        super().scale_lr(optim_wrapper, auto_scale_lr)

    def build_logger(self, *args: Any, **kwargs: Any) -> Any:
        """Like mmengine's, but with a short start on the terminal."""
        logger = super().build_logger(*args, **kwargs)
        short_terminal(logger)
        return logger

    def build_visualizer(self, visualizer: Any = None) -> Any:
        """Like mmengine's, but with a new visualizer per run; one with a fixed name would keep writing to the folder of
        an earlier run in this process."""
        if isinstance(visualizer, dict):
            visualizer = {key: value for key, value in visualizer.items() if key != 'name'}
        return super().build_visualizer(visualizer)

    def dump_config(self) -> None:
        """Like mmengine's, but a test leaves the config of a training in its work dir as it is."""
        if self._train_dataloader is not None or not resumable(Path(self.work_dir)):
            super().dump_config()

    def resume(self, filename: str, *args: Any, **kwargs: Any) -> None:
        """Resume training from ``filename``; the checkpoint must match the model completely."""
        self.labels = self._training_labels()
        self.required, self.hint = 'all', '; resume with the config that the training was started with'
        self._resuming = True
        wanted, seed = settings_of(self), self._randomness_cfg.get('seed')
        try:
            super().resume(filename, *args, **kwargs)
        except (KeyError, ValueError) as error:  # raised by optimizers and schedulers that do not fit
            if isinstance(error, UserError):
                raise
            raise UserError(f'cannot resume from {filename}: its optimizer or scheduler state does not fit the config '
                            f'({type(error).__name__}: {one_line(error, 160)}); to start from its weights, use '
                            f'--cfg-options load_from={filename}') from error
        finally:
            self._resuming = False
        if line := other_settings(self.cfg, self._resumed_config, filename):
            note(line)
        lines = unused_settings(wanted, settings_of(self))
        if seed is not None and self._randomness_cfg.get('seed') != seed:
            lines.append(f'seed {self._randomness_cfg["seed"]} (config: {seed})')
        if lines:
            note(unused_line(lines, filename) + deleted_hint(self.cfg))
        finished = finished_line(self.train_loop, not isinstance(self.train_loop, IterBasedTrainLoop), filename)
        if finished:
            note(finished)

    def _training_labels(self) -> tuple[Sequence[str], str] | None:
        metainfo = getattr(getattr(self.train_dataloader, 'dataset', None), 'metainfo', None) or {}
        classes = metainfo.get('classes')
        return (classes, 'train_dataloader.dataset') if classes else None

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module) -> torch.nn.Module:
        """Like mmengine's, but replace SyncBN by BN on CPUs, where torch does not support SyncBN."""
        if self.distributed and get_device() == 'cpu':
            synced = sum(isinstance(module, torch.nn.SyncBatchNorm) for module in model.modules())
            if synced:
                self.logger.info(f'{synced} SyncBN layers replaced by BN: synchronised statistics need GPUs')
                model = revert_sync_batchnorm(model)
        return super().wrap_model(model_wrapper_cfg, model)


def build_runner(config: Any, required: str, hint: str = '', partial_allowed: bool = False) -> CheckedRunner:
    """Build the runner of ``config`` (or its ``runner_type``), with the loading of :class:`CheckedRunner`."""
    load_safely()
    kind = config.get('runner_type')
    if kind is None:
        runner_class = CheckedRunner
    else:
        named = RUNNERS.get(kind) if isinstance(kind, str) else kind
        if named is None:
            raise KeyError(f'{kind} is not in the mmengine::runner registry')
        runner_class = type(f'Checked{named.__name__}', (CheckedRunner, named), {})
    runner = runner_class.from_cfg(config)
    runner.required, runner.hint, runner.partial_allowed = required, hint, partial_allowed
    watch_ranks()
    return runner


def run_length(loop: Any) -> RunLength:
    """Return the length of a built training loop."""
    by_epoch = not isinstance(loop, IterBasedTrainLoop)
    try:
        per_epoch = len(loop.dataloader)
    except TypeError:  # a stream
        per_epoch = None
    return RunLength(by_epoch, loop.max_epochs if by_epoch else None, loop.max_iters, per_epoch)


def check_iterations(dataloader: Any) -> None:
    """Check that an epoch has at least one iteration.

    Raises:
        UserError: it has none; with the number of images and processes and the batch size.
    """
    sampler = getattr(dataloader, 'sampler', None)
    if not hasattr(dataloader, '__len__') or 'Infinite' in type(sampler).__name__:  # endless
        return
    try:
        iterations, images = len(dataloader), len(dataloader.dataset)
    except TypeError:  # a stream
        return
    if iterations:
        return
    if not images:
        raise UserError('the training set has no images; check train_dataloader.dataset')
    processes = f' over {get_world_size()} processes' if get_world_size() > 1 else ''
    least = max(1, images // get_world_size())
    raise UserError(f'{images} image{"s" * (images > 1)}{processes}, batch {dataloader.batch_size}, drop_last=True: '
                    f'no iterations; set train_dataloader.batch_size to {least} or less, or set '
                    'train_dataloader.drop_last=False')
