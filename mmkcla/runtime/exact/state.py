"""The part of the training state that mmengine does not store: random numbers, accumulated gradients, data order."""
from typing import Any

import torch
from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.hooks import EarlyStoppingHook

from ...errors import UnusableCheckpoint
from ..wrappers import between_steps, inner_model
from .random_state import kept_random_state, random_state, set_random_state
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
                           for name, module in inner_model(runner.model).named_modules()
                           if type(module).__name__ in _ATTRIBUTES},
            'early_stopping': [[hook.best_score, hook.wait_count] for hook in _early_stopping(runner)]}


def check_entry(runner: Any, checkpoint: dict, source: str) -> None:
    """Check the entry :data:`KEY` of a checkpoint before anything of the runner changes.

    Raises:
        UnusableCheckpoint: it is damaged.
    """
    state = checkpoint.get(KEY)
    if state is None:
        return
    try:
        counters = [state['validated'], state.get('done', 0)]
        if not all(type(count) is int and 0 <= count <= checkpoint['meta']['iter'] for count in counters):
            raise ValueError
        if not isinstance(state['attributes'], dict) or not isinstance(state['sampler_seed'], (int, type(None))):
            raise TypeError
        for best, count in state['early_stopping']:
            float(best), int(count)
        for rank in state['ranks']:
            _check_rank(runner, rank)
    except _DAMAGED as error:
        raise damaged(source, error) from error


def _check_rank(runner: Any, state: State) -> None:
    with kept_random_state():
        set_random_state({**state, 'cuda': []})
    gradients = state.get('gradients', {})
    if not all(one.dtype is torch.uint8 for one in state['cuda']):
        raise TypeError
    if any(name in gradients and gradients[name].shape != value.shape for name, value in _parameters(runner)):
        raise ValueError


def changes(runner: Any, state: State, source: str) -> list[str]:
    """Return what prevents an exact resume: one phrase for each difference of the runs.

    Raises:
        UnusableCheckpoint: ``state`` is damaged.
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
        UnusableCheckpoint: ``state`` is damaged.
    """
    sampler = seeded_sampler(runner.train_loop.dataloader)
    try:
        if state['sampler_seed'] is not None and hasattr(sampler, 'seed'):
            sampler.seed = int(state['sampler_seed'])
        modules = dict(inner_model(runner.model).named_modules())
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
        UnusableCheckpoint: ``state`` is damaged.
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


def damaged(source: str, error: Exception) -> UnusableCheckpoint:
    """Return the error for an entry that cannot be used."""
    return UnusableCheckpoint(f'cannot resume from {source}: its entry exact_resume is damaged '
                              f'({type(error).__name__}); use another checkpoint, or start from its weights with '
                              f'--cfg-options load_from={source}')


def _parameters(runner: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return list(inner_model(runner.model).named_parameters())


def _early_stopping(runner: Any) -> list[EarlyStoppingHook]:
    return [hook for hook in runner.hooks if isinstance(hook, EarlyStoppingHook)]


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # a stream
        return None
