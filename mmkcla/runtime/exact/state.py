"""The part of the training state that mmengine does not store: random numbers, accumulated gradients, data order."""
from typing import Any

import torch
from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.hooks import EarlyStoppingHook
from mmengine.model import is_model_wrapper

from ...errors import UserError
from .random_state import random_state, set_random_state
from .samples import seeded_sampler

KEY = 'exact_resume'  # in checkpoints
State = dict[str, Any]
# attributes of modules which change in the course of the training, but are not in the state dict; by class
_ATTRIBUTES = {'BatchSyncRandomResize': '_input_size'}
_DAMAGED = (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError)


def rank_state(runner: Any) -> State:
    """Return the state of this rank: that of its random numbers, and the gradients of an unfinished accumulation."""
    state = random_state()
    if between_steps(runner.optim_wrapper):
        state['gradients'] = {name: parameter.grad.detach().cpu().clone() for name, parameter in _parameters(runner)
                              if parameter.grad is not None}
    return state


def all_rank_states(runner: Any) -> list[State]:
    """Return :func:`rank_state` of all ranks, in their order; all of them must call it."""
    state = rank_state(runner)
    return [state] if get_world_size() == 1 else all_gather_object(state)


def run_state(runner: Any, ranks: list[State], validated: int) -> State:
    """Return the entry :data:`KEY` of a checkpoint.

    Args:
        ranks: of :func:`all_rank_states`.
        validated: iteration of the last validation.
    """
    loader = runner.train_loop.dataloader
    return {'ranks': ranks, 'validated': validated, 'sampler_seed': getattr(seeded_sampler(loader), 'seed', None),
            'batches': _length(loader), 'batch_size': getattr(loader, 'batch_size', None),
            'attributes': {name: getattr(module, _ATTRIBUTES[type(module).__name__])
                           for name, module in _model(runner).named_modules() if type(module).__name__ in _ATTRIBUTES},
            'early_stopping': [[hook.best_score, hook.wait_count] for hook in _early_stopping(runner)]}


def changes(runner: Any, state: State, source: str) -> list[str]:
    """Return what prevents an exact resume: one phrase for each difference of the runs.

    Raises:
        UserError: ``state`` is damaged.
    """
    loader = runner.train_loop.dataloader
    try:
        found = [(len(state['ranks']), get_world_size(), 'processes'),
                 (state['batches'], _length(loader), 'batches per epoch'),
                 (state['batch_size'], getattr(loader, 'batch_size', None), 'images per batch')]
    except _DAMAGED as error:
        raise damaged(source, error) from error
    return [f'{what}: {before} when it was saved, now {now}' for before, now, what in found if before != now]


def restore_run(runner: Any, state: State, source: str) -> int:
    """Restore what is the same on all ranks: data order, attributes of modules, early stopping.

    Returns:
        The iteration of the last validation.

    Raises:
        UserError: ``state`` is damaged.
    """
    sampler = seeded_sampler(runner.train_loop.dataloader)
    try:
        if state['sampler_seed'] is not None and hasattr(sampler, 'seed'):
            sampler.seed = int(state['sampler_seed'])
        modules = dict(_model(runner).named_modules())
        for name, value in state['attributes'].items():
            kind = type(modules.get(name)).__name__
            if kind in _ATTRIBUTES:
                setattr(modules[name], _ATTRIBUTES[kind], tuple(value) if isinstance(value, list) else value)
        for hook, (best, count) in zip(_early_stopping(runner), state['early_stopping'], strict=False):
            hook.best_score, hook.wait_count = float(best), int(count)
        return int(state['validated'])
    except _DAMAGED as error:
        raise damaged(source, error) from error


def restore_rank(runner: Any, state: State, source: str) -> None:
    """Restore the random numbers of this rank and its accumulated gradients.

    Raises:
        UserError: ``state`` is damaged.
    """
    try:
        own = state['ranks'][get_rank()]
        gradients = own.get('gradients', {})
        for name, parameter in _parameters(runner):
            if name in gradients:
                parameter.grad = gradients[name].to(parameter.device, parameter.dtype).reshape(parameter.shape)
        set_random_state(own)
    except _DAMAGED as error:
        raise damaged(source, error) from error


def damaged(source: str, error: Exception) -> UserError:
    """Return the error for an entry that cannot be used."""
    return UserError(f'cannot resume from {source}: its entry exact_resume is damaged ({type(error).__name__}); use '
                     f'another checkpoint, or start from its weights with --cfg-options load_from={source}')


def between_steps(wrapper: Any) -> bool:
    """Whether the next step of an optimizer uses gradients of finished iterations."""
    wrappers = wrapper.values() if hasattr(wrapper, 'optim_wrappers') else [wrapper]
    return any(getattr(one, '_inner_count', 0) % getattr(one, '_accumulative_counts', 1) for one in wrappers)


def _model(runner: Any) -> torch.nn.Module:
    return runner.model.module if is_model_wrapper(runner.model) else runner.model


def _parameters(runner: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return list(_model(runner).named_parameters())


def _early_stopping(runner: Any) -> list[EarlyStoppingHook]:
    return [hook for hook in runner.hooks if isinstance(hook, EarlyStoppingHook)]


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # a stream
        return None
