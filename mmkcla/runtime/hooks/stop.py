"""Stop a training on a signal: finish the step, write a checkpoint, end."""
import os
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop
from torch import distributed

from ...registry import HOOKS
from ...utils.files import whole_file
from ...utils.signals import Interrupted, agreed, defer, received
from ..validation import validation_follows
from ..wrappers import between_steps, is_several
from .checkpoint import INTERRUPTED, remove_interrupted, require_folder


@HOOKS.register_module()
class StopHook(Hook):
    """On a signal (:mod:`mmkcla.utils.signals`), finish the step, write a checkpoint and raise ``Interrupted``.

    If a validation is due after the step, or running, it is finished first, so that a resumed training does not miss
    it; with gradient accumulation, the step of the optimizer is completed first. All ranks stop after the same step:
    they compare a flag after each one, over gloo and thus without waiting for the GPU. The checkpoint has the usual
    name if it is at a place where the checkpoint hook could write one, else ``iter_<n>.pth``; the last such file is
    deleted when another one is written, with ``max_keep_ckpts`` also when the checkpoint hook writes its next one.
    """

    priority = 'LOWEST'  # after the checkpoint hook: everything of the step is done

    def __init__(self) -> None:
        self._group: Any = None
        self._number: int | None = None

    def before_train(self, runner: Any) -> None:
        """From now on, a signal does not interrupt."""
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            self._group = distributed.new_group(backend='gloo')
        defer(True)

    def after_train(self, runner: Any) -> None:
        """The training is complete: a signal interrupts again."""
        defer(False)

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Stop after this iteration, unless the epoch ends or a validation follows."""
        loop, done = runner.train_loop, runner.iter + 1
        if not self._wanted():
            return
        if not is_several(runner.optim_wrapper) and between_steps(runner.optim_wrapper):
            return  # after the step; the steps of several optimizers may never coincide
        if isinstance(loop, EpochBasedTrainLoop) and batch_idx + 1 >= len(loop.dataloader):
            return  # after_train_epoch
        if isinstance(loop, IterBasedTrainLoop) and validation_follows(loop, done, loop.max_iters):
            return  # after_val_epoch
        self._stop(runner, runner.epoch, done, by_epoch=False)

    def after_train_epoch(self, runner: Any) -> None:
        """Stop after this epoch, unless a validation follows."""
        loop = runner.train_loop
        if self._number is None or not isinstance(loop, EpochBasedTrainLoop):
            return
        if not validation_follows(loop, runner.epoch + 1, loop.max_epochs):
            self._stop(runner, runner.epoch + 1, runner.iter, by_epoch=True)

    def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
        """Stop after a validation in the training."""
        if not isinstance(runner._train_loop, (EpochBasedTrainLoop, IterBasedTrainLoop)) or not self._wanted():
            return
        self._stop(runner, runner.epoch, runner.iter, isinstance(runner.train_loop, EpochBasedTrainLoop),
                   again=True)  # with the metrics

    def _wanted(self) -> bool:
        """Whether any rank has received a signal; all ranks call this at the same places."""
        if self._number is None:
            number = received() or 0
            if self._group is not None:
                flag = torch.tensor(number)
                distributed.all_reduce(flag, distributed.ReduceOp.MAX, group=self._group)
                number = int(flag)
            self._number = number or None
            if number:
                agreed(number)
        return self._number is not None

    def _stop(self, runner: Any, epoch: int, iteration: int, by_epoch: bool, again: bool = False) -> None:
        hook = next((one for one in runner.hooks if isinstance(one, CheckpointHook)), None)
        if hook is None:
            advice = f'iteration {iteration}; no checkpoint, since default_hooks.checkpoint is off'
        else:
            path = save_now(runner, hook, epoch, iteration, by_epoch, again)
            advice = f'iteration {iteration}, checkpoint {path}; to resume, run the same command with --resume'
        runner.visualizer.close()
        if self._group is not None:  # torchrun ends the others as soon as one rank ends: wait until rank 0 has written
            distributed.barrier(self._group)
        defer(False)
        assert self._number is not None
        raise Interrupted(self._number, advice)


def save_now(runner: Any, hook: CheckpointHook, epoch: int, iteration: int, by_epoch: bool, again: bool) -> str:
    """Write a checkpoint in the folder of the checkpoint hook; return its path.

    Args:
        runner: the runner.
        hook: its checkpoint hook.
        epoch, iteration: those that are complete.
        by_epoch: whether an epoch has just ended.
        again: write it even if the hook has just done so.
    """
    require_folder(hook)
    meta = dict(epoch=epoch, iter=iteration)
    if by_epoch == hook.by_epoch:
        step = epoch if by_epoch else iteration
        name = hook.filename_tmpl.format(step)
        if again or not hook.last_ckpt or Path(hook.last_ckpt).name != name:
            runner.logger.info(f'Saving checkpoint {name}')
            hook._save_checkpoint_with_step(runner, step, meta=meta)
        return str(hook.last_ckpt)
    name = f'iter_{iteration}.pth'
    before = runner.message_hub.runtime_info.get(INTERRUPTED)
    path = hook.file_backend.join_path(hook.out_dir, name)
    hook.last_ckpt = path
    runner.message_hub.update_info('last_ckpt', path)
    runner.message_hub.update_info(INTERRUPTED, name)
    runner.logger.info(f'Saving checkpoint {name}')
    runner.save_checkpoint(hook.out_dir, name, hook.file_client_args, save_optimizer=hook.save_optimizer,
                           save_param_scheduler=hook.save_param_scheduler, meta=meta, by_epoch=False,
                           backend_args=hook.backend_args, **hook.args)
    if is_main_process():
        with whole_file(os.path.join(runner.work_dir, 'last_checkpoint'), 'w') as file:
            file.write(str(path))
        if before != name:
            remove_interrupted(hook, before)
    return str(path)
