"""Stop a training, or skip an iteration, before NaN or infinite values reach the weights."""
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from mmengine.dist import all_gather_object, all_reduce, get_world_size
from mmengine.hooks import Hook
from torch import Tensor

from ...errors import NonFiniteError, UserError
from ...registry import HOOKS
from ...utils.text import listed, note, plural
from ...weights.finite import all_finite, non_finite_entries
from ..batch_files import clean_inputs, files_of
from ..wrappers import inner_model, optim_wrappers

ACTIONS = ('stop', 'skip')
SKIPPED = 'non_finite_skipped'  # in the message hub, so that it is saved and resumed
_INPUT, _LOSS, _GRADIENT = range(3)
_LISTED = 8


@HOOKS.register_module()
class NonFiniteHook(Hook):
    """Check images, loss and gradients before each step of the optimizer; ``mmkcla train`` adds this hook.

    NaN or infinite values end the training with :class:`~mmkcla.errors.NonFiniteError` (exit code 3), which names the
    image files of the batch, or the iteration is skipped: weights, optimizer and buffers (the statistics of batch
    norms) stay as they were. With gradient accumulation, what was accumulated since the last step is dropped. All
    processes of a distributed training act alike. The check of the gradients is fused and needs one synchronisation
    per step.

    The steps that the loss scaling of mixed precision skips, because the scaled gradients overflow, are part of its
    search for a scale and are not reported.

    Args:
        action: ``'stop'``, or ``'skip'``.
        budget: number of iterations that ``'skip'`` may skip in the whole training, also if it is resumed; one more
            ends it as ``'stop'`` does.

    Raises:
        UserError: ``action`` is unknown, or ``budget`` is not a natural number.
    """

    priority = 'VERY_HIGH'

    def __init__(self, action: str = 'stop', budget: int | None = None) -> None:
        if action not in ACTIONS:
            raise UserError(f"NonFiniteHook: action={action!r} must be 'stop' or 'skip'")
        if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 0):
            raise UserError(f'NonFiniteHook: budget={budget!r} must be an integer of at least 0')
        if budget is not None and action == 'stop':
            note(f"NonFiniteHook: budget={budget} has no effect with action='stop'")
        self.action = action
        self.budget = 10 if budget is None else budget
        self._losses: list[Tensor] = []
        self._bad_files: list[str] = []  # of non-finite images since the last check
        self._window: list[str] = []  # all files since the last step
        self._found: list[int] = []

    def before_train(self, runner: Any) -> None:
        """Put the check between the backward pass and the step of each optimizer."""
        model = inner_model(runner.model)
        self._buffers = [buffer for buffer in model.buffers() if buffer.numel()]
        self._wrappers = list(optim_wrappers(runner.optim_wrapper).values())
        for wrapper in self._wrappers:
            wrapper.optimizer.register_step_pre_hook(self._before_step)
            wrapper.backward = self._with_loss(wrapper.backward)
        runner.model.train_step = self._checked(runner, model, runner.model.train_step)

    def after_train(self, runner: Any) -> None:
        """Report the number of skipped iterations."""
        if skipped := _skipped(runner):
            note(f'{plural(skipped, "iteration")} with NaN or infinite values skipped (see the log for the files)')

    def _with_loss(self, backward: Callable[..., None]) -> Callable[..., None]:
        def noting(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            self._losses.append(loss.detach())
            backward(loss, *args, **kwargs)

        return noting

    def _checked(self, runner: Any, model: torch.nn.Module, train_step: Callable[..., Any]) -> Callable[..., Any]:
        def step(data: Any, *args: Any, **kwargs: Any) -> Any:
            data, bad = clean_inputs(data)
            self._bad_files += bad
            self._window += files_of(data)
            self._stepped, self._found = False, []
            before = [buffer.clone() for buffer in self._buffers] if self.action == 'skip' else []
            try:
                outputs = train_step(data, *args, **kwargs)
            except UserError:
                raise
            except Exception as error:  # NaN in the middle of a detector
                if names := non_finite_entries(model.state_dict()):
                    raise NonFiniteError(self._where(runner, f'the weights ({listed(names)}) are NaN or infinite',
                                                     self._window)) from error
                raise
            if not self._stepped:  # still accumulating, or skipped by the loss scaling
                self._check([])
            if self._found:
                self._act(runner, model, before)
                outputs = {name: value for name, value in outputs.items()
                           if not isinstance(value, Tensor) or all_finite([value])}
            if self._stepped or self._found:
                self._window = []
            return outputs

        return step

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Called by torch right before a step: without gradients, a step changes nothing."""
        self._stepped = True
        parameters = [value for group in optimizer.param_groups for value in group['params'] if value.grad is not None]
        self._check([value.grad for value in parameters])
        if self._found:
            for value in parameters:
                value.grad = None

    def _check(self, gradients: list[Tensor]) -> None:
        """Set ``_found`` to what is not finite in any process."""
        flags = [bool(self._bad_files), not all_finite(self._losses), not _all_finite(gradients)]
        self._ours = flags
        if get_world_size() > 1:
            device = next((value.device for value in (*gradients, *self._losses)), torch.device('cpu'))
            shared = torch.tensor(flags, dtype=torch.int32, device=device)
            all_reduce(shared, 'max')
            flags = [bool(flag) for flag in shared.tolist()]
        self._found += [kind for kind, flag in enumerate(flags) if flag and kind not in self._found]
        self._losses = []

    def _act(self, runner: Any, model: torch.nn.Module, before: list[Tensor]) -> None:
        """Stop, or undo the iteration and count it."""
        files = self._blamed()
        if self.action == 'skip':
            for buffer, value in zip(self._buffers, before, strict=True):
                buffer.copy_(value)
        names = non_finite_entries(model.state_dict())
        what = self._what(names, dict(model.named_buffers()))
        if names or self.action == 'stop':
            raise NonFiniteError(self._where(runner, what, files))
        for wrapper in self._wrappers:
            wrapper.zero_grad()
        runner.message_hub.update_info(SKIPPED, _skipped(runner) + 1)
        if _skipped(runner) > self.budget:
            raise NonFiniteError(self._where(runner, f'{what}, and the budget of {plural(self.budget, "iteration")} to '
                                             'skip is used up', files))
        runner.logger.warning(f'iteration {runner.iter + 1} skipped ({_skipped(runner)} of at most {self.budget}): '
                              f'{what}; images: {", ".join(files) or "unknown"}')

    def _blamed(self) -> list[str]:
        """The files behind the values found, of all processes: the images themselves, else those of the batches whose
        loss is not finite, else all since the last step."""
        if _INPUT in self._found:
            ours = self._bad_files
        else:
            ours = self._window if _LOSS not in self._found or self._ours[_LOSS] else []
        self._bad_files = []
        if get_world_size() == 1:
            return list(dict.fromkeys(ours))
        return list(dict.fromkeys(name for each in all_gather_object(ours) for name in each))

    def _what(self, names: list[str], buffers: Collection[str]) -> str:
        if _INPUT in self._found:
            return 'the images have NaN or infinite pixels'
        what = f'the {"loss is" if _LOSS in self._found else "gradients are"} NaN or infinite'
        if weights := [name for name in names if name not in buffers]:
            return f'{what}, as are the weights {listed(weights)}'
        if names:  # the forward pass updates them before the loss is known
            return f'{what}, as are the batch-norm statistics {listed(names)}; the weights are still finite'
        return what

    def _where(self, runner: Any, what: str, files: list[str]) -> str:
        remedy = ('; lower the learning rate or clip the gradients (optim_wrapper.clip_grad)'
                  if _INPUT not in self._found else '; correct or remove them')
        if self.action == 'stop':
            remedy += ", or skip such iterations with NonFiniteHook(action='skip')"
        return (f'iteration {runner.iter + 1}: {what}; images: {listed(files, _LISTED) or "unknown"}{remedy}')


def _skipped(runner: Any) -> int:
    return int(runner.message_hub.runtime_info.get(SKIPPED, 0))


def _all_finite(gradients: list[Tensor]) -> bool:
    """Like :func:`all_finite`, with one fused operation for the usual, dense gradients."""
    dense = [value for value in gradients if value.layout is torch.strided and value.numel()]
    others = [value for value in gradients if value.layout is not torch.strided]
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for value in dense:
        groups.setdefault((value.device, value.dtype), []).append(value)
    largest = [norm for group in groups.values() for norm in torch._foreach_norm(group, float('inf'))]
    return all_finite(largest) and all_finite(others)
