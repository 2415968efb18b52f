"""Compare the cost of the features (backbone and neck) of several configs, without a data set."""
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
from ..runtime.checks import check_keys
from ..runtime.hosts import prepare_hosts
from ..utils.files import whole_file
from ..utils.tables import write_csv

if TYPE_CHECKING:
    from mmengine.config import Config

COLUMNS = ('config', 'parameters', 'saved_bytes', 'seconds', 'ratio', 'ratio_q1', 'ratio_q3')


@dataclass
class FeatureCost:
    """Cost of one config: parameters of the complete model, and for one training step of ``extract_feat`` (forward and
    backward) the bytes saved by autograd and the seconds of each round."""

    config: str
    parameters: int
    saved_bytes: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median seconds per step."""
        return statistics.median(self.seconds)


def feature_costs(models: dict[str, nn.Module], shape: tuple[int, int, int, int], rounds: int,
                  device: str = 'cpu') -> list[FeatureCost]:
    """Time ``extract_feat`` forward and backward. The models run in turn, so that other load affects all of them.

    Args:
        models: models of mmdet, mmseg or mmpretrain by name.
        shape: shape of the images, ``(B, 3, H, W)``.
        rounds: number of timed steps per model, after one warm-up step.
        device: device to run on.
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
    """Record the memory saved by autograd for the backward pass as ``{storage: bytes}``.

    Parameters and buffers are excluded. Tensors saved by several operations count once.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}
    alive: list[Any] = []  # prevents reuse of addresses

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
    """Write ``features.csv`` and ``features.md`` atomically, with ratios to the first config.

    The time ratio is the median over rounds of the ratio within each round, with quartiles. This cancels other load on
    the machine.

    Returns:
        The Markdown text.
    """
    first = costs[0]
    lines = [f'One training step of backbone and neck; {conditions}; {len(first.seconds)} rounds in turn.', '',
             '| config | parameters (complete model) | saved for backward (MiB) | × | step (ms) | × (quartiles) |',
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
    """Build the model of a config and import the libraries it needs.

    Raises:
        UserError: if the config has no model, or the model has no ``extract_feat``.
    """
    from mmengine.registry import MODELS, init_default_scope
    if not config.get('model'):
        raise UserError(f'config {name} has no model')
    prepare_hosts(config)
    check_keys(config)
    init_default_scope(config.get('default_scope', 'mmengine'))
    model = MODELS.build(config.model)
    if not hasattr(model, 'extract_feat'):
        raise UserError(f'{name}: {type(model).__name__} has no extract_feat; use a model of mmdet, mmseg or '
                        'mmpretrain')
    return model
