"""(c) The layer weights as a heat map, temperatures and Φ per head, and the gates of each image."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from ..layers.inspection import CARRY
from ..utils.figures import new_figure, sparse_ticks, write_figure
from ..utils.tables import write_csv
from ..utils.text import listed, plural
from .record import Stage
from .subject import Subject, each_image

_START = ('config', 'method', 'weights', 'stage', 'layer')
WEIGHT_COLUMNS = (*_START, 'from_layer', 'head', 'weight', 'weight_std', 'images')
HEAD_COLUMNS = (*_START, 'head', 'temperature', 'temperature_std', 'images')
PHI_COLUMNS = (*_START, 'head', 'from_head', 'phi')
GATE_COLUMNS = (*_START, 'image', 'gate_mean', 'gate_std', 'gate_min', 'gate_max')


@dataclass
class StageWeights:
    """The recorded weights of one stage.

    ``weights``: of (layer, token), the shares of every image, each ``(heads,)``; ``temperatures`` and ``gates``: of a
    layer, of every image ``(heads,)``, empty for methods without; ``phi``: of a layer, ``(G, G)``. Per channel where
    the shares are (MRLA-light, DLA-L). ``not_known``: by class, the methods for heads that it does not define.
    """

    number: int
    depth: int
    weights: dict[tuple[int, int], list[np.ndarray]] = field(default_factory=dict)
    temperatures: dict[int, list[np.ndarray]] = field(default_factory=dict)
    gates: dict[int, list[np.ndarray]] = field(default_factory=dict)
    phi: dict[int, np.ndarray] = field(default_factory=dict)
    not_known: dict[str, list[str]] = field(default_factory=dict)

    def add(self, stage: Stage) -> None:
        """Add the calls of the stage for one image (batch 1)."""
        for position, call in enumerate(stage.calls):
            parts = stage.shares(position)
            for token, weight in zip(parts.tokens, parts.weights, strict=True):
                self.weights.setdefault((position + 1, token), []).append(weight[0].cpu().double().numpy())
            if missing := call.layer.not_known_of_heads():
                self.not_known[type(call.layer).__name__] = missing
            for kept, name in ((self.temperatures, 'head_temperatures'), (self.gates, 'head_gates')):
                if (value := stage.of_heads(position, name)) is not None:
                    kept.setdefault(position + 1, []).append(value[0].cpu().double().numpy())
            matrix = call.layer.head_mixing_matrix()
            if matrix is not None:
                self.phi[position + 1] = matrix.detach().cpu().double().numpy()

    @property
    def has_carry(self) -> bool:
        """Whether the carry has a share in any layer."""
        return any(token == CARRY for _, token in self.weights)

    def heat_map(self) -> np.ndarray:
        """Mean over heads and images: one row per layer, one column per token (the carry first); NaN if absent."""
        shift = 0 if self.has_carry else 1
        grid = np.full((self.depth, self.depth + 1 - shift), np.nan)
        for (layer, token), values in self.weights.items():
            grid[layer - 1, token - shift] = np.mean(values)
        return grid


@torch.no_grad()
def layer_weights(subject: Subject, images: list[Path]) -> list[StageWeights]:
    """The recorded weights of all stages; images in order."""
    found: dict[int, StageWeights] = {}
    for _, stages in each_image(subject, images):
        for stage in stages:
            found.setdefault(stage.number, StageWeights(stage.number, stage.depth)).add(stage)
    return list(found.values())


def conclusions(subject: Subject, results: list[StageWeights]) -> list[str]:
    """One line per stage: the layer with the largest weight in the last output, temperatures, gates; one line per class
    with methods that are not defined."""
    lines = []
    for result in results:
        last = {token: float(np.mean(values)) for (layer, token), values in result.weights.items()
                if layer == result.depth}
        top = max(last, key=lambda token: abs(last[token]))
        name = 'what was carried over' if top == CARRY else f'layer {top}'
        even = f'; even shares would be {1 / len(last):.3f}' if abs(sum(last.values()) - 1) < 1e-3 else ''
        parts = [f'in the output of layer {result.depth} {name} weighs most ({last[top]:.3f}{even})']
        if result.temperatures:
            values = np.concatenate([np.stack(of_layer).ravel() for of_layer in result.temperatures.values()])
            parts.append(f'temperatures from {values.min():.3f} to {values.max():.3f}')
        if result.gates:
            values = np.concatenate([np.stack(of_layer).ravel() for of_layer in result.gates.values()])
            parts.append(f'gates {values.mean():.3f} ± {values.std():.3f} (from {values.min():.3f} to '
                         f'{values.max():.3f})')
        images = len(next(iter(result.weights.values())))
        lines.append(f'{subject.title}, stage {result.number}: {"; ".join(parts)} ({plural(images, "image")})')
    not_known = {name: methods for result in results for name, methods in result.not_known.items()}
    return lines + [f'not known for {name}: define {listed(methods)} in the class (return None where it has none)'
                    for name, methods in not_known.items()]


def write(folder: Path, subject: Subject, results: list[StageWeights], images: list[Path]) -> list[Path]:
    """``layer_weights_<config>.csv`` and ``.png``; temperatures, Φ and gates in CSVs of their own, where there are any.
    """
    def start(stage: StageWeights, layer: int) -> dict:
        return dict(config=subject.label, method=subject.method, weights=subject.weights, stage=stage.number,
                    layer=layer)

    def spread(values: list[np.ndarray]) -> list[tuple[float, float | None]]:
        stacked = np.stack(values)
        std = stacked.std(0, ddof=1).tolist() if len(stacked) > 1 else [None] * stacked.shape[1]
        return list(zip(stacked.mean(0).tolist(), std, strict=True))

    weights = [start(stage, layer) | dict(from_layer='carry' if token == CARRY else token, head=head + 1, weight=mean,
                                          weight_std=std, images=len(values))
               for stage in results for (layer, token), values in stage.weights.items()
               for head, (mean, std) in enumerate(spread(values))]
    temperatures = [start(stage, layer) | dict(head=head + 1, temperature=mean, temperature_std=std, images=len(values))
                    for stage in results for layer, values in stage.temperatures.items()
                    for head, (mean, std) in enumerate(spread(values))]
    phi = [start(stage, layer) | dict(head=i + 1, from_head=j + 1, phi=float(value))
           for stage in results for layer, matrix in stage.phi.items() for (i, j), value in np.ndenumerate(matrix)]
    gates = [start(stage, layer) | dict(image=image.name, gate_mean=float(of_image.mean()),
                                        gate_std=float(of_image.std()), gate_min=float(of_image.min()),
                                        gate_max=float(of_image.max()))
             for stage in results for layer, values in stage.gates.items()
             for image, of_image in zip(images, values, strict=True)]
    written = []
    for name, rows, columns in (
            ('layer_weights', weights, WEIGHT_COLUMNS), ('temperatures', temperatures, HEAD_COLUMNS),
            ('phi', phi, PHI_COLUMNS), ('gates', gates, GATE_COLUMNS)):
        if rows:
            written.append(folder / f'{name}_{subject.label}.csv')
            write_csv(written[-1], rows, columns)
    written.append(folder / f'layer_weights_{subject.label}.png')
    _draw(written[-1], subject, results, len(images))
    return written


def _draw(path: Path, subject: Subject, results: list[StageWeights], images: int) -> None:
    columns = [_draw_weights]
    columns += [_draw_temperatures] if any(stage.temperatures for stage in results) else []
    columns += [_draw_phi] if any(stage.phi for stage in results) else []
    columns += [_draw_gates] if any(stage.gates for stage in results) else []
    figure = new_figure(3.6 * len(columns) + 0.6, 2.9 * len(results) + 0.7)
    axes = figure.subplots(len(results), len(columns), squeeze=False)
    for row, stage in zip(axes, results, strict=True):
        for axis, draw in zip(row, columns, strict=True):
            draw(axis, stage)
    figure.suptitle(f'{subject.label}\n{subject.method}, {subject.weights}, {plural(images, "image")}', fontsize=10)
    write_figure(path, figure)


def _draw_weights(axis, stage: StageWeights) -> None:
    grid = stage.heat_map()
    signed = np.nanmin(grid) < 0
    limit = float(np.nanmax(np.abs(grid)))
    image = axis.imshow(grid, cmap='RdBu_r' if signed else 'viridis', vmin=-limit if signed else 0, vmax=limit,
                        aspect='auto')
    names = (['carry'] if stage.has_carry else []) + [str(i + 1) for i in range(stage.depth)]
    ticks = sparse_ticks(len(names))
    axis.set_xticks(ticks, [names[tick] for tick in ticks])
    ticks = sparse_ticks(stage.depth)
    axis.set_yticks(ticks, [tick + 1 for tick in ticks])
    axis.set(title=f'stage {stage.number}: weights', xlabel='of layer', ylabel='in the output of layer')
    axis.figure.colorbar(image, ax=axis, label='weight (mean of heads)')
    if grid.size <= 42:
        for (i, j), value in np.ndenumerate(grid):
            if np.isfinite(value):
                pale = abs(value) < 0.6 * limit if signed else value > 0.6 * limit
                axis.text(j, i, f'{value:.2f}', ha='center', va='center', fontsize=7,
                          color='black' if pale else 'white')


def _draw_temperatures(axis, stage: StageWeights) -> None:
    for number, (layer, values) in enumerate(stage.temperatures.items()):
        mean = np.mean(values, axis=0)
        shade = 0.25 + 0.75 * number / max(len(stage.temperatures) - 1, 1)
        axis.plot(range(1, len(mean) + 1), mean, marker='.', color='C0', alpha=shade,
                  label=f'layer {layer}' if layer in (1, stage.depth) else None)
    axis.set(title=f'stage {stage.number}: temperatures', xlabel='head', ylabel='P')
    _integer_axis(axis)
    axis.grid(alpha=0.3)
    if stage.depth > 1:
        axis.legend(fontsize=8)


def _draw_phi(axis, stage: StageWeights) -> None:
    if not stage.phi:
        axis.set_axis_off()
        return
    layer, matrix = max(stage.phi.items())
    limit = float(np.abs(matrix).max()) or 1.
    image = axis.imshow(matrix, cmap='RdBu_r', vmin=-limit, vmax=limit, aspect='auto')
    ticks = sparse_ticks(len(matrix), 9)
    axis.set_xticks(ticks, [tick + 1 for tick in ticks])
    axis.set_yticks(ticks, [tick + 1 for tick in ticks])
    axis.set(title=f'stage {stage.number}: Φ of layer {layer}', xlabel='from head', ylabel='to head')
    axis.figure.colorbar(image, ax=axis)


def _draw_gates(axis, stage: StageWeights) -> None:
    layers = sorted(stage.gates)
    axis.boxplot([np.concatenate(stage.gates[layer]) for layer in layers], positions=layers, widths=0.6,
                 flierprops=dict(markersize=3))
    ticks = [layers[tick] for tick in sparse_ticks(len(layers))]
    axis.set_xticks(ticks, ticks)
    axis.set(title=f'stage {stage.number}: gates', xlabel='layer', ylabel='gate (heads, images)', ylim=(-0.03, 1.03))
    axis.grid(alpha=0.3, axis='y')


def _integer_axis(axis) -> None:
    from matplotlib.ticker import MaxNLocator
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
