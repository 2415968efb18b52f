"""Compare models side by side in one run: time, memory, memory traffic and operators of training and inference."""
from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.deploy import switch_to_deploy
from .batches import random_batch
from .count import MacCounter
from .memory import peak_of, saved_storages
from .subject import seeded_model
from .traffic import TrafficCounter

if TYPE_CHECKING:
    from mmengine.config import Config

# largest difference of the features from those of the eager model, relative to their largest value
TOLERANCES = {'eager': 0., 'channels-last': 1e-4, 'compiled': 1e-4, 'deployed': 1e-5, 'amp': 0.1}
PARTS = ('model', 'features')


@dataclass
class ModelCost:
    """Cost of one form of one config.

    ``parameters``, ``macs`` (multiply-accumulates of one inference of the batch, convolutions and matrix products),
    ``saved`` (bytes kept for backward), ``peak`` (bytes of a training step beyond the weights), ``traffic`` and
    ``calls`` (bytes and operators of a training step), ``inference_traffic`` and ``inference_calls``; None where a form
    has no training or cannot be observed. ``difference``: of its features from those of the eager form. ``training``
    and ``inference``: seconds of each round.
    """

    config: str
    form: str
    parameters: int
    macs: int | None = None
    saved: int | None = None
    peak: int | None = None
    traffic: int | None = None
    calls: int | None = None
    inference_traffic: int | None = None
    inference_calls: int | None = None
    difference: float = 0.
    loading: float | None = None
    training: list[float] = field(default_factory=list)
    inference: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Config and form."""
        return self.config if self.form == 'eager' else f'{self.config}, {self.form}'


class _Runnable:
    """One form of a model, with its steps."""

    def __init__(self, model: nn.Module, form: str, part: str, scope: str, shape: tuple[int, int, int, int],
                 device: str) -> None:
        self.model, self.form, self.part, self.device = model, form, part, device
        self.images, self.samples = random_batch(model, scope, shape, device)
        if form == 'channels-last':
            self.model.to(memory_format=torch.channels_last)
            self.images = self.images.contiguous(memory_format=torch.channels_last)
        elif form == 'deployed':
            self.model = switch_to_deploy(self.model)
        elif form == 'compiled':
            self.model.backbone.compile()

    def _autocast(self) -> Any:
        return torch.autocast(self.device.partition(':')[0], torch.bfloat16) if self.form == 'amp' else nullcontext()

    def loss(self) -> Tensor:
        """The loss of a training step."""
        with self._autocast():
            if self.part == 'features':
                return sum(level.float().square().mean() for level in _levels(self.model.extract_feat(self.images)))
            losses = self.model(self.images, copy.deepcopy(self.samples), mode='loss')
            return self.model.parse_losses(losses)[0]

    def train_step(self) -> None:
        """Forward and backward; the gradients are dropped."""
        self.model.zero_grad(set_to_none=True)
        self.loss().backward()

    def infer(self) -> None:
        """An inference."""
        with torch.inference_mode():
            self.predict()

    def predict(self) -> None:
        """The pass of an inference, under the gradient mode of the caller: counters do not see inference mode."""
        with self._autocast():
            if self.part == 'features':
                self.model.extract_feat(self.images)
            else:
                self.model(self.images, copy.deepcopy(self.samples), mode='predict')

    @torch.no_grad()
    def features(self) -> list[Tensor]:
        """The maps of backbone and neck in evaluation mode."""
        self.model.eval()
        with self._autocast():
            return [level.float() for level in _levels(self.model.extract_feat(self.images))]


def _levels(features: Any) -> Sequence[Tensor]:
    return features if isinstance(features, (tuple, list)) else [features]


def measure(configs: dict[str, Config], forms: Sequence[str], shape: tuple[int, int, int, int], rounds: int,
            part: str = 'model', device: str = 'cpu',
            progress: Callable[[str], None] = lambda _: None) -> list[ModelCost]:
    """Measure each form of each config.

    All forms of a config have the same weights. Before anything is timed, the features of every form are compared with
    those of the eager one. Then the forms run in turn, so that other load on the machine affects all of them.

    Args:
        configs: configs by name, whose hosts are imported.
        forms: of :data:`TOLERANCES`; ``deployed`` has inference only.
        shape: of the images, ``(B, C, H, W)``.
        rounds: timed training steps and inferences of each form, after one warm-up.
        part: ``'model'``: the complete model with its losses and predictions; ``'features'``: backbone and neck.
        device: device to run on.
        progress: called with a line before each slow step.

    Raises:
        UserError: a form differs from the eager one by more than its tolerance, or a model cannot run.
    """
    runs: list[tuple[ModelCost, _Runnable]] = []
    for name, config in configs.items():
        eager = seeded_model(config).to(device)
        if not hasattr(eager, 'extract_feat'):
            raise UserError(f'{name}: {type(eager).__name__} has no extract_feat; use a model of mmdet, mmseg or '
                            'mmpretrain')
        expected: list[Tensor] | None = None
        for form in dict.fromkeys(['eager', *forms]):
            progress(f'{name}: preparing {form}')
            runnable = _Runnable(copy.deepcopy(eager), form, part, config.get('default_scope', ''), shape, device)
            cost = ModelCost(name, form, sum(parameter.numel() for parameter in runnable.model.parameters()))
            features = runnable.features()
            expected = expected or features
            cost.difference = _require_equal(cost, features, expected)
            if form in forms:
                _count(cost, runnable)
                runs.append((cost, runnable))
    for number in range(rounds):
        progress(f'round {number + 1} of {rounds}')
        for cost, runnable in runs:
            if cost.form != 'deployed':
                runnable.model.train()
                cost.training.append(_seconds(runnable.train_step, device))
            runnable.model.zero_grad(set_to_none=True)
            runnable.model.eval()
            cost.inference.append(_seconds(runnable.infer, device))
    return [cost for cost, _ in runs]


def _require_equal(cost: ModelCost, features: list[Tensor], expected: list[Tensor]) -> float:
    largest = max(float((left - right).abs().max() / right.abs().max().clamp(min=1e-6))
                  for left, right in zip(features, expected, strict=True))
    if not largest <= TOLERANCES[cost.form]:
        raise UserError(f'{cost.name} differs from the eager form by {largest:.1e} of the largest value (limit '
                        f'{TOLERANCES[cost.form]:g}); nothing was timed')
    return largest


def _count(cost: ModelCost, runnable: _Runnable) -> None:
    """Warm up, and count what does not depend on the time. Compiled code is not seen by the counters."""
    seen = cost.form != 'compiled'
    if cost.form != 'deployed':
        runnable.model.train()
        _finite(cost, runnable)
        if seen:
            with saved_storages(runnable.model) as saved, TrafficCounter() as counter:
                loss = runnable.loss()
            with counter:
                loss.backward()
            cost.saved, cost.traffic, cost.calls = sum(saved.values()), counter.traffic, counter.calls
            runnable.model.zero_grad(set_to_none=True)
            del loss
        if seen or runnable.device.startswith('cuda'):
            cost.peak = peak_of(runnable.train_step, runnable.device)
        runnable.model.zero_grad(set_to_none=True)
    runnable.model.eval()
    runnable.infer()
    if seen:
        with torch.no_grad(), TrafficCounter() as counter:
            runnable.predict()
        cost.inference_traffic, cost.inference_calls = counter.traffic, counter.calls
        with torch.no_grad(), MacCounter() as macs:
            runnable.predict()
        cost.macs = macs.macs


def _finite(cost: ModelCost, runnable: _Runnable) -> None:
    with _statistics_kept(runnable.model):
        loss = runnable.loss()
        loss.backward()
    if not bool(torch.isfinite(loss)):
        raise UserError(f'{cost.name}: the loss of random images is {float(loss):g}; nothing was timed')
    runnable.model.zero_grad(set_to_none=True)


@contextmanager
def _statistics_kept(model: nn.Module) -> Iterator[None]:
    """Restore the buffers, such as running statistics, after the block."""
    kept = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    yield
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])


def _seconds(run: Callable[[], None], device: str) -> float:
    if device.startswith('cuda'):
        torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    if device.startswith('cuda'):
        torch.cuda.synchronize()
    return time.perf_counter() - started


def ratios(own: Sequence[float], other: Sequence[float]) -> tuple[float, float, float] | None:
    """Median and quartiles of the ratio within each round; None without rounds. Cancels other load on the machine."""
    found = [left / right for left, right in zip(own, other, strict=False)]
    if not found:
        return None
    low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
    return middle, low, high
