"""``mmkcla train --smoke``: each stage of a training once, in a folder that is removed afterwards."""
from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import CheckpointHook, Hook
from mmengine.registry import DATASETS

from ..errors import UserError
from ..utils.durations import duration
from ..utils.text import listed, plural
from .device import pick_device
from .hooks.stop import save_now
from .log_processor import process_memory
from .run_time import sum_text, validations
from .runner import CheckedRunner, build_runner

STEPS = 2  # iterations before the validation
_IMAGES = 4  # of the validation, or one batch
# entries of evaluators, hooks and visualizers that name what is written
_OUTPUTS = ('out_dir', 'save_dir', 'test_out_dir', 'img_save_dir', 'seg_out_dir', 'outfile_prefix', 'out_file_path',
            'out_file', 'save_path')
_SHOWN = 4  # metrics in a line


class _Enough(Exception):
    """The iterations are done."""


class _Clock(Hook):
    """Measure the iterations: loading of the batch and training step, without the hooks."""

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.losses: list[float] = []
        self.val_steps: list[float] = []
        self.metrics: dict[str, float] = {}
        self.started = 0.

    def restart(self) -> None:
        """Begin to measure."""
        self.started = time.perf_counter()

    def before_train_epoch(self, runner: Any) -> None:
        self.restart()

    def before_val_epoch(self, runner: Any) -> None:
        self.restart()

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.steps.append(self._elapsed())
        if (outputs or {}).get('loss') is not None:
            self.losses.append(float(torch.as_tensor(outputs['loss']).detach()))

    def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.val_steps.append(self._elapsed())
        self.restart()

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        self.metrics = dict(metrics or {})
        self.restart()

    def _elapsed(self) -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - self.started


class _Last(Hook):
    """Stop after some iterations, when all other hooks have run."""

    priority = 'LOWEST'

    def __init__(self, clock: _Clock, steps: int) -> None:
        self.clock, self.most = clock, steps

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if len(self.clock.steps) >= self.most:
            raise _Enough
        self.clock.restart()


class Few:
    """The first images of a data set.

    Args:
        dataset: a data set with indices.
        most: number of images.
    """

    def __init__(self, dataset: Any, most: int) -> None:
        self.dataset, self.most = dataset, most

    def __len__(self) -> int:
        return min(self.most, len(self.dataset))

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or name == 'dataset':  # while it is copied
            raise AttributeError(name)
        return getattr(self.dataset, name)


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Name the stage that fails."""
    try:
        yield
    except Exception:
        print(f'failed  {name}', flush=True)
        raise


def _done(line: str) -> None:
    print(f'ok      {line}', flush=True)


def run_smoke(config: Any, host: str | None, folder: Path, required: str) -> None:
    """Train two iterations, validate, write a checkpoint, resume from it for one more iteration and predict an image;
    print a line for each, the peak memory, and an estimate of the time of the whole training.

    Args:
        config: complete, as for a training.
        host: its main host.
        folder: for everything that is written; removed by the caller.
        required: see :class:`CheckedRunner`.

    Raises:
        UserError: there are several processes. A stage that fails raises what it raises in a training.
    """
    if get_world_size() > 1:
        raise UserError('--smoke runs in one process; use it without torchrun and --launcher')
    config = _prepared(config, folder)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with _stage(plural(STEPS, 'iteration')):
        runner, clock, few = _trained(config, 'first', STEPS, required)
    print(f'smoke run in a temporary folder; {_cut(few)}')
    _done(f'{plural(len(clock.steps), "iteration")}: {", ".join(map(duration, clock.steps))}{_losses(clock)}')
    with _stage('validation'):
        if few is None:
            _done('no validation: the config has none')
        else:
            if not clock.val_steps:
                runner.val_loop.run()
            _done(f'validation of {plural(len(few), "image")}: {_metrics(clock.metrics)}')
    with _stage('checkpoint'):
        path = _checkpoint(runner)
    other = _resumed(config, path) if path else runner
    with _stage('prediction'):
        _done(f'prediction: {_predict(config, host, path, folder, other)}')
    print(f'peak memory: {_peak()}')
    print(_estimate(runner, clock, few))


def _prepared(config: Any, folder: Path) -> Any:
    """Return a copy that writes to ``folder`` only, and no log lines to the terminal."""
    config = copy.deepcopy(config)
    config.work_dir, config.log_level, config.resume = str(folder), 'WARNING', False
    for key in ('default_hooks', 'custom_hooks', 'val_evaluator', 'visualizer'):
        _redirect(config.get(key), folder)
    if config.get('visualizer'):  # no other backend: some of them report to a server
        config.visualizer['vis_backends'] = [dict(type='LocalVisBackend')]
    return config


def _redirect(part: Any, folder: Path) -> None:
    if isinstance(part, dict):
        for key in part:
            if key in _OUTPUTS and part[key] is not None:
                part[key] = str(folder / 'outputs' / Path(str(part[key])).name)
            else:
                _redirect(part[key], folder)
    elif isinstance(part, (list, tuple)):
        for inner in part:
            _redirect(inner, folder)


def _trained(config: Any, name: str, steps: int, required: str) -> tuple[CheckedRunner, _Clock, Few | None]:
    """Train some iterations; return the runner, the measured times, and the images of the validation."""
    config = copy.deepcopy(config)
    # mmengine keeps logs and visualizers by name and second
    config.experiment_name = f'{Path(config.work_dir).name}_{name}'
    runner = build_runner(config, required=required)
    runner.stops = False
    few, clock = _cut_validation(runner), _Clock()
    runner.register_hook(clock)
    runner.register_hook(_Last(clock, steps))
    with suppress(_Enough):
        runner.train()
        return runner, clock, few
    runner.train_loop._iter += 1  # the last iteration is complete
    return runner, clock, few


def _cut_validation(runner: CheckedRunner) -> Few | None:
    loader = runner._val_dataloader
    if not isinstance(loader, dict):
        return None
    dataset = loader['dataset']
    if isinstance(dataset, dict):
        dataset = DATASETS.build(dataset)
        if hasattr(dataset, 'full_init'):
            dataset.full_init()
    few = Few(dataset, max(_IMAGES, loader.get('batch_size') or 1))
    runner._val_dataloader = {**loader, 'dataset': few}
    return few


def _cut(few: Few | None) -> str:
    if few is None:
        return 'no validation set'
    whole = len(few.dataset)
    return (f'the validation set is cut to {len(few)} of {plural(whole, "image")}: its metrics mean nothing'
            if len(few) < whole else f'the validation set has {plural(whole, "image")}')


def _losses(clock: _Clock) -> str:
    return f'; loss {", ".join(f"{loss:.4g}" for loss in clock.losses)}' if clock.losses else ''


def _metrics(metrics: dict[str, Any]) -> str:
    shown = [f'{name} {value:.4g}' for name, value in metrics.items() if isinstance(value, (int, float))]
    return listed(shown, _SHOWN) or 'no metrics'


def _checkpoint(runner: CheckedRunner) -> Path | None:
    hook = next((one for one in runner.hooks if isinstance(one, CheckpointHook)), None)
    if hook is None:
        _done('no checkpoint: default_hooks.checkpoint is off')
        return None
    path = Path(save_now(runner, hook, runner.epoch, runner.iter, by_epoch=False, again=True))
    _done(f'checkpoint of iteration {runner.iter}: {path.stat().st_size / 2**20:.1f} MiB')
    return path


def _resumed(config: Any, path: Path) -> CheckedRunner:
    with _stage('resume from the checkpoint'):
        config = copy.deepcopy(config)
        config.resume, config.load_from = True, str(path)
        runner, clock, _ = _trained(config, 'resumed', 1, 'all')
        more = (f', {plural(len(clock.steps), "more iteration")}{_losses(clock)}' if clock.steps
                else '; the training has no more iterations')
        _done(f'resumed from it{more}')
    return runner


def _predict(config: Any, host: str | None, path: Path | None, folder: Path, runner: CheckedRunner) -> str:
    """Predict an image as ``mmkcla infer`` does; without image files, one of the validation."""
    from ..datasets.evaluated_images import images_of_split
    from .inference import PREDICTORS
    from .inference.run import predict_all
    splits = [split for split in ('val', 'train') if config.get(f'{split}_dataloader')]
    images = [file for split in splits for file in (images_of_split(config, split) or [])[:1]]
    kind = PREDICTORS.get(host or '') if config.get('default_scope') == host else None
    if kind and path and images and config.get('test_dataloader'):
        predictor = kind(config, str(path), pick_device(None))
        done, failed = predict_all(predictor, images[:1], folder / 'pictures', 1)
        if failed:
            raise UserError(failed[0]['reason'])
        return f'{images[0].name} as by mmkcla infer, {plural(len(done[0]["predictions"]), "result")}'
    if runner._val_dataloader is None:
        return 'none: the config has no validation set, and no image files'
    runner.model.eval()
    with torch.no_grad():
        samples = runner.model.val_step(next(iter(runner.val_dataloader)))
    return f'{plural(len(samples), "image")} of the validation set'


def _peak() -> str:
    if torch.cuda.is_available():
        return f'{torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB of the GPU'
    memory = process_memory()
    return f'{memory:,} MiB of the process' if memory else 'unknown on this system'


def _estimate(runner: CheckedRunner, clock: _Clock, few: Few | None) -> str:
    """Return the line with the time of the whole training; the first iteration, which warms up, is left out."""
    step = min(clock.steps[1:] or clock.steps)
    images, each = 0, None
    if few is not None and clock.val_steps:
        batches = clock.val_steps[1:] or clock.val_steps
        images = len(few) / len(clock.val_steps)
        each = sum(batches) / len(batches) / images * len(few.dataset)
    count = validations(runner.train_loop) if few is not None else 0
    total = runner.train_loop.max_iters * step + count * (each or 0)
    return (f'the whole training: about {duration(total)} ({sum_text(runner.train_loop.max_iters, step, count, each)}; '
            'without the computation of metrics)')
