"""What the features of several configs (backbone and neck) cost beside each other, without a data set."""
from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..runtime.hosts import prepare_hosts
from ..utils.files import whole_file
from ..utils.tables import write_csv

if TYPE_CHECKING:
    from mmengine.config import Config

COLUMNS = ('config', 'parameters', 'saved_bytes', 'seconds', 'ratio', 'ratio_q1', 'ratio_q3')


@dataclass
class FeatureCost:
    """Of one config: parameters of the whole model, and of one training step of ``extract_feat`` (a forward and a
    backward) the bytes that autograd keeps and the seconds of each round."""

    config: str
    parameters: int
    saved_bytes: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds a step."""
        return statistics.median(self.seconds)


def feature_costs(models: dict[str, nn.Module], shape: tuple[int, int, int, int], rounds: int,
                  device: str = 'cpu') -> list[FeatureCost]:
    """Run ``extract_feat`` of every model forward and backward, in turns, so that what else the machine does hits all.

    Args:
        models: by name; any host's, in the mode to be measured.
        shape: of the images, ``(B, 3, H, W)``.
        rounds: timed steps a model, after one that is not.
        device: where.
    """
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    costs = []
    for name, model in models.items():
        model.to(device).train()
        with saved_storages(model) as saved:
            loss = _loss(model, images)
        costs.append(FeatureCost(name, sum(parameter.numel() for parameter in model.parameters()),
                                 sum(saved.values())))
        loss.backward()
    for _ in range(rounds):
        for cost, model in zip(costs, models.values(), strict=True):
            model.zero_grad(set_to_none=True)
            started = _now(device)
            _loss(model, images).backward()
            cost.seconds.append(_now(device) - started)
    return costs


@contextmanager
def saved_storages(model: nn.Module) -> Iterator[dict[int, int]]:
    """Within it, what autograd keeps for the backward pass: ``{storage: bytes}``, parameters and buffers not counted.

    Maps that several operations keep are counted once.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}
    alive: list[Any] = []  # so that no address is used twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


def _loss(model: nn.Module, images: Tensor) -> Tensor:
    features = model.extract_feat(images)
    return sum(feature.square().mean() for feature in (features if isinstance(features, Sequence) else [features]))


def _now(device: str) -> float:
    if device.startswith('cuda'):
        torch.cuda.synchronize()
    return time.perf_counter()


def write_features(folder: Path, costs: Sequence[FeatureCost], conditions: str) -> str:
    """Write ``features.csv`` and ``features.md``, each whole; ratios are to the first.

    The ratio of time is the median over rounds of the ratio within a round, with its quartiles, so that what the
    machine did meanwhile cancels.

    Returns:
        The Markdown.
    """
    first = costs[0]
    lines = [f'A training step of backbone and neck; {conditions}; {len(first.seconds)} rounds in turns.', '',
             '| config | parameters (whole model) | kept for backward (MiB) | × | step (ms) | × (quartiles) |',
             '| --- | ---: | ---: | ---: | ---: | --- |']
    rows = []
    for cost in costs:
        ratios = [own / other for own, other in zip(cost.seconds, first.seconds, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        kept = cost.saved_bytes / 2**20
        lines.append(f'| {cost.config} | {cost.parameters:,} | {kept:.1f} | {cost.saved_bytes / first.saved_bytes:.2f} '
                     f'| {cost.median * 1e3:.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |')
        rows.append(dict(zip(COLUMNS, (cost.config, cost.parameters, cost.saved_bytes, cost.median, middle, low, high),
                             strict=True)))
    write_csv(folder / 'features.csv', rows, COLUMNS, digits=None)
    with whole_file(folder / 'features.md', 'w') as file:
        file.write('\n'.join(lines) + '\n')
    return '\n'.join(lines)


def model_with_features(config: Config, name: str) -> nn.Module:
    """The model of a config, its hosts imported.

    Raises:
        UserError: it has no model, or one without ``extract_feat``.
    """
    from mmengine.registry import MODELS, init_default_scope
    if not config.get('model'):
        raise UserError(f'config {name} has no model')
    prepare_hosts(config)
    init_default_scope(config.get('default_scope', 'mmengine'))
    model = MODELS.build(config.model)
    if not hasattr(model, 'extract_feat'):
        raise UserError(f'{name}: {type(model).__name__} has no extract_feat, only models of mmdet, mmseg and '
                        'mmpretrain have')
    return model
