"""The results of :mod:`.model_cost` as table, CSV, figure, and a record of the machine."""
from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..utils.figures import new_figure, write_figure
from ..utils.files import whole_file, write_json
from ..utils.tables import markdown_table, write_csv
from ..version import __version__
from .model_cost import ModelCost, ratios

COLUMNS = ('config', 'form', 'parameters', 'macs', 'saved_bytes', 'peak_bytes', 'traffic_bytes', 'calls',
           'inference_traffic_bytes', 'inference_calls', 'training_seconds', 'training_ratio', 'training_ratio_q1',
           'training_ratio_q3', 'inference_seconds', 'inference_ratio', 'inference_ratio_q1', 'inference_ratio_q3',
           'loading_seconds', 'difference')
_MEASURES = {'saved': 'kept', 'peak': 'peak', 'traffic': 'traffic', 'calls': 'calls',
             'inference_traffic': 'inference traffic', 'inference_calls': 'inference calls'}


def first_of(costs: Sequence[ModelCost], cost: ModelCost) -> ModelCost:
    """The first config in the same form: what a row is compared with."""
    return next(other for other in costs if other.form == cost.form)


def conditions(shape: Sequence[int], rounds: int, part: str, device: str) -> dict[str, Any]:
    """What the numbers depend on."""
    cuda = device.startswith('cuda')
    return dict(part=part, shape=list(shape), rounds=rounds, device=device, threads=torch.get_num_threads(),
                processor=torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
                system=platform.platform(), python=platform.python_version(), torch=torch.__version__,
                cuda=torch.version.cuda if cuda else None, mmkcla=__version__)


def rows(costs: Sequence[ModelCost]) -> list[dict[str, Any]]:
    """One dict of :data:`COLUMNS` per row."""
    found = []
    for cost in costs:
        first = first_of(costs, cost)
        row: dict[str, Any] = dict(
            config=cost.config, form=cost.form, parameters=cost.parameters, macs=cost.macs, saved_bytes=cost.saved,
            peak_bytes=cost.peak, traffic_bytes=cost.traffic, calls=cost.calls, loading_seconds=cost.loading,
            inference_traffic_bytes=cost.inference_traffic, inference_calls=cost.inference_calls,
            difference=cost.difference)
        for kind in ('training', 'inference'):
            own = getattr(cost, kind)
            ratio = ratios(own, getattr(first, kind))
            row[f'{kind}_seconds'] = median(own)
            row |= dict(zip((f'{kind}_ratio', f'{kind}_ratio_q1', f'{kind}_ratio_q3'), ratio or (None, ) * 3,
                            strict=True))
        found.append(row)
    return found


def median(seconds: Sequence[float]) -> float | None:
    """The median, or None without values."""
    return sorted(seconds)[len(seconds) // 2] if seconds else None


def markdown(costs: Sequence[ModelCost], facts: dict[str, Any]) -> str:
    """The table, with ratios to the first config in the same form."""
    size = '×'.join(map(str, facts['shape']))
    what = 'backbone and neck' if facts['part'] == 'features' else 'complete models with losses and predictions'
    header = ('config', 'parameters', 'GMAC', 'kept MiB (×)', 'peak MiB (×)', 'traffic MiB (×)', 'calls (×)',
              'training ms (×, quartiles)', 'inference: traffic MiB (×)', 'calls (×)', 'ms (×, quartiles)')
    with_data = any(cost.loading for cost in costs)
    lines = []
    for cost in costs:
        first = first_of(costs, cost)
        lines.append([cost.name, f'{cost.parameters:,}', '-' if cost.macs is None else f'{cost.macs / 1e9:.3f}',
                      *(_amount(cost, first, name, 2**20) for name in ('saved', 'peak', 'traffic')),
                      _amount(cost, first, 'calls', 1), _time(cost, first, 'training'),
                      _amount(cost, first, 'inference_traffic', 2**20), _amount(cost, first, 'inference_calls', 1),
                      _time(cost, first, 'inference')]
                     + ([f'{cost.loading * 1e3:.1f}' if cost.loading else '-'] if with_data else []))
    return '\n'.join([
        f'Images {size}, {what}; {facts["device"]} ({facts["processor"]}), {facts["threads"]} threads, torch '
        f'{facts["torch"]}; {facts["rounds"]} rounds in turn. Ratios (×) are to the first config in the same form.', '',
        *markdown_table(header + (('loading ms', ) if with_data else ()), lines)])


def _amount(cost: ModelCost, first: ModelCost, name: str, unit: int) -> str:
    value, other = getattr(cost, name), getattr(first, name)
    if value is None:
        return '-'
    shown = f'{value / unit:,.1f}' if unit > 1 else f'{value:,}'
    return f'{shown} ({value / other:.2f})' if other else shown


def _time(cost: ModelCost, first: ModelCost, kind: str) -> str:
    ratio = ratios(getattr(cost, kind), getattr(first, kind))
    if ratio is None:
        return '-'
    return f'{median(getattr(cost, kind)) * 1e3:.1f} ({ratio[0]:.2f}, {ratio[1]:.2f} to {ratio[2]:.2f})'


def write(folder: Path, costs: Sequence[ModelCost], facts: dict[str, Any]) -> list[Path]:
    """Write ``model.csv``, ``model.md``, ``model.png`` and ``machine.json`` to ``folder``."""
    table, text, picture, machine = (folder / name for name in ('model.csv', 'model.md', 'model.png', 'machine.json'))
    write_csv(table, rows(costs), COLUMNS, digits=None)
    with whole_file(text, 'w') as file:
        file.write(markdown(costs, facts) + '\n')
    write_json(machine, facts)
    _draw(picture, costs, facts)
    return [text, table, picture, machine]


def _draw(path: Path, costs: Sequence[ModelCost], facts: dict[str, Any]) -> None:
    """Bars of all ratios to the first config in the same form."""
    names = list(dict.fromkeys(cost.config for cost in costs))
    figure = new_figure(11, 1.5 + 0.45 * len(costs) * 2)
    panels = figure.subplots(2, 4).ravel()
    ratio = {name: [_ratio(getattr(cost, name), getattr(first_of(costs, cost), name)) for cost in costs]
             for name in _MEASURES}
    drawn = {'training time': [(row or (0., ))[0] for row in
                               (ratios(cost.training, first_of(costs, cost).training) for cost in costs)],
             'inference time': [(row or (0., ))[0] for row in
                                (ratios(cost.inference, first_of(costs, cost).inference) for cost in costs)],
             **{label: ratio[name] for name, label in _MEASURES.items()}}
    for number, (axis, (label, values)) in enumerate(zip(panels, drawn.items(), strict=True)):
        axis.barh(range(len(costs)), values, color=[f'C{names.index(cost.config)}' for cost in costs])
        for row, value in enumerate(values):
            axis.annotate(f'{value:.2f}' if value else 'not measured', (value, row), (3, 0),
                          textcoords='offset points', va='center', fontsize=8)
        axis.set_yticks(range(len(costs)), [cost.name for cost in costs] if number % 4 == 0 else [''] * len(costs),
                        fontsize=8)
        axis.axvline(1, color='grey', linewidth=0.8)
        axis.invert_yaxis()
        axis.margins(x=0.25)
        axis.set_title(label, fontsize=9)
    figure.suptitle(f'Ratios to the first config; images {"×".join(map(str, facts["shape"]))}, {facts["device"]}',
                    fontsize=10)
    write_figure(path, figure)


def _ratio(value: int | None, other: int | None) -> float:
    return value / other if value is not None and other else 0.
