"""mmengine's runner, with checkpoints read safely and compared with the model before anything relies on them."""
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import get_world_size
from mmengine.model import BaseTTAModel, is_model_wrapper, revert_sync_batchnorm
from mmengine.registry import RUNNERS
from mmengine.runner import CheckpointLoader, Runner

from ..errors import UserError
from ..utils.text import one_line
from ..weights.matching import compare, require, state_dict_for
from ..weights.reading import download, read_checkpoint


class CheckedRunner(Runner):
    """A runner that says what it loads.

    ``required`` is how much of a model a checkpoint must fill: ``'all'``, or ``'some'``, as for the start of a
    training from another data set's weights. Resuming requires all.
    """

    required = 'some'
    hint = ''  # at the end of the refusal
    loaded: dict[str, Any] = {}  # epoch and iteration of the checkpoint last read, where it says so

    def load_checkpoint(self, filename: str, map_location: Any = 'cpu', strict: bool = False,
                        revise_keys: list | None = None) -> dict:
        """Read ``filename`` (a path or an http address) without running code from it, compare, log the counts, load.

        Raises:
            UserError: the file cannot be read, or fits the model less than ``required``.
        """
        if '://' in filename and not filename.startswith(('http://', 'https://')):
            return super().load_checkpoint(filename, map_location=map_location, strict=strict)
        checkpoint = read_checkpoint(download(filename))
        model = inner_model(self.model)
        state_dict = state_dict_for(model, checkpoint)
        meta = checkpoint.get('meta') if isinstance(checkpoint.get('meta'), dict) else {}
        self.loaded = {name: meta[name] for name in ('epoch', 'iter') if name in meta}
        report = compare(model, state_dict)
        self.logger.info(f'checkpoint {filename}: {report.summary()}')
        require(report, 'all' if strict else self.required, filename, self.hint)
        # hooks (EMA) look for the weights under this key and may change them
        checkpoint['state_dict'] = {name: state_dict[name] for name in state_dict if name not in set(report.mismatched)}
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        model.load_state_dict(checkpoint['state_dict'], strict=False)
        self._has_loaded = True
        return checkpoint

    def build_train_loop(self, loop: Any) -> Any:
        """As mmengine's; an epoch without an iteration, which would 'train' nothing, is refused."""
        built = super().build_train_loop(loop)
        check_iterations(built.dataloader)
        return built

    def build_visualizer(self, visualizer: Any = None) -> Any:
        """As mmengine's, but each run has its own: one of a fixed name would go on writing to the folder of an
        earlier run of this process."""
        if isinstance(visualizer, dict):
            visualizer = {key: value for key, value in visualizer.items() if key != 'name'}
        return super().build_visualizer(visualizer)

    def resume(self, filename: str, *args: Any, **kwargs: Any) -> None:
        """Take up a training where ``filename`` left it; the checkpoint must fit the model whole."""
        self.required, self.hint = 'all', '; a training can go on only with the config it began with'
        try:
            super().resume(filename, *args, **kwargs)
        except (KeyError, ValueError) as error:  # of optimizers and schedulers; whatever they are, they do not fit
            if isinstance(error, UserError):
                raise
            raise UserError(f'cannot resume from {filename}: the state of its optimizer and schedules does not fit the '
                            f'config ({type(error).__name__}: {one_line(error, 160)}); start from its '
                            f'weights with --cfg-options load_from={filename}') from error

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module) -> torch.nn.Module:
        """As mmengine's; on CPUs, where torch has no SyncBN, several processes train with plain BN."""
        if self.distributed and get_device() == 'cpu':
            synced = sum(isinstance(module, torch.nn.SyncBatchNorm) for module in model.modules())
            if synced:
                self.logger.info(f'{synced} SyncBN layers become BN: synchronised statistics need GPUs')
                model = revert_sync_batchnorm(model)
        return super().wrap_model(model_wrapper_cfg, model)


def build_runner(config: Any, required: str, hint: str = '') -> CheckedRunner:
    """The runner of ``config`` (its ``runner_type`` too, if it names one), with :class:`CheckedRunner`'s loading."""
    read_checkpoints_safely()
    kind = config.get('runner_type')
    if kind is None:
        runner_class = CheckedRunner
    else:
        named = RUNNERS.get(kind) if isinstance(kind, str) else kind
        if named is None:
            raise KeyError(f'{kind} is not in the mmengine::runner registry')
        runner_class = type(f'Checked{named.__name__}', (CheckedRunner, named), {})
    runner = runner_class.from_cfg(config)
    runner.required, runner.hint = required, hint
    return runner


def check_iterations(dataloader: Any) -> None:
    """See that a training's data give at least one iteration.

    Raises:
        UserError: they do not; with the numbers of images, processes and the batch.
    """
    sampler = getattr(dataloader, 'sampler', None)
    if not hasattr(dataloader, '__len__') or 'Infinite' in type(sampler).__name__:  # which ends no epoch
        return
    try:
        iterations, images = len(dataloader), len(dataloader.dataset)
    except TypeError:  # a stream
        return
    if iterations:
        return
    if not images:
        raise UserError('the training set has no images, so there would be no iteration; see train_dataloader.dataset')
    processes = f' over {get_world_size()} processes' if get_world_size() > 1 else ''
    least = max(1, images // get_world_size())
    raise UserError(f'{images} image{"s" * (images > 1)}{processes}, batch {dataloader.batch_size}, drop_last: no '
                    f'iteration; lower the batch (train_dataloader.batch_size={least} at most), or set '
                    'train_dataloader.drop_last=False')


def read_checkpoints_safely() -> None:
    """Let everything that mmengine loads by a path or an http address (``init_cfg`` of any module) go through
    :func:`~mmkcla.checkpoint.read_checkpoint`, which runs no code; mmengine falls back to unsafe unpickling."""
    def load(filename: str, map_location: Any = None) -> dict:
        return read_checkpoint(download(filename))

    CheckpointLoader.register_scheme(prefixes=['', 'http://', 'https://'], loader=load, force=True)


def inner_model(model: torch.nn.Module) -> torch.nn.Module:
    """The model whose names a checkpoint has, without DDP's or test-time augmentation's wrapper."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model
