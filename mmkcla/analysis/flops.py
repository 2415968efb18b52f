"""(e) Parameters and multiply-accumulates of the model of any config, without its data set."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import UserError
from ..utils.figures import new_figure, write_figure
from ..utils.files import whole_file
from ..utils.tables import write_csv
from ..utils.text import one_line
from .count import RULE_HINT, MacCounter
from .subject import seeded_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mmengine.config import Config

COLUMNS = ('config', 'part', 'parameters', 'macs', 'input_height', 'input_width')
UNCOUNTED_COLUMNS = ('config', 'operator', 'calls', 'elements')
TOTAL, REST = 'total', 'rest'
_ATTENTIONS = 'layer_attentions'


@dataclass
class Part:
    """Parameters and MACs of a part of a model; ``inside`` is the name of its parent part, or '' at the top level."""

    name: str
    parameters: int
    macs: int
    inside: str = ''


@dataclass
class Complexity:
    """Cost of the model of a config for one image of ``shape`` (H, W).

    ``parts``: the children of the model, with the layer attentions of the backbone again separately; ``uncounted``:
    operator, calls and output elements, sorted by elements; ``proposals``: number of regions in the second stage of
    two-stage detectors, else None; ``without_rule``: of the uncounted operators those of other packages than torch,
    which may hold matrix products, so that ``macs`` is a lower bound.
    """

    config: str
    shape: tuple[int, int]
    parameters: int
    macs: int
    parts: list[Part]
    uncounted: list[tuple[str, int, int]]
    proposals: int | None = None
    without_rule: tuple[str, ...] = ()


def complexity(config: Config, shape: tuple[int, int], device: torch.device | str = 'cpu') -> Complexity:
    """Count the MACs of convolutions and matrix products for one image of zeros.

    Args:
        config: config of mmdet, mmseg or mmpretrain, whose libraries are already imported.
        shape: (H, W) of the network's input.
        device: device to run on.

    Raises:
        UserError: if the model does not accept this input shape, or cannot run without a data set.
    """
    model = seeded_model(config).to(device)
    inputs = torch.zeros(1, _in_channels(model), *shape, device=device)
    regions: list[int] = []
    handle = None
    head = getattr(getattr(model, 'roi_head', None), 'bbox_head', None)
    if isinstance(head, nn.ModuleList):
        head = head[0]
    if isinstance(head, nn.Module):
        handle = head.register_forward_pre_hook(lambda module, args: regions.append(len(args[0])))
    try:
        with torch.no_grad(), MacCounter(model) as counter:
            model(inputs, _samples(config, shape), mode='tensor')
    except (RuntimeError, ValueError, AssertionError, AttributeError, TypeError, NotImplementedError) as error:
        reason = one_line(error, 200)
        raise UserError(f'the model of config {config.filename} cannot be run on an input of {shape[0]}×{shape[1]}: '
                        f'{reason}; try another --shape') from error
    finally:
        if handle is not None:
            handle.remove()
    return Complexity(
        Path(config.filename).stem, shape, _parameters(model), counter.macs, _parts(model, counter),
        sorted(((name, calls, counter.elements[name]) for name, calls in counter.calls.items()),
               key=lambda entry: -entry[2]), regions[0] if regions else None,
        tuple(sorted(name for name in counter.without_rule if '::' in name)))


def _in_channels(model: nn.Module) -> int:
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels


def _samples(config: Config, shape: tuple[int, int]) -> list[Any] | None:
    """Metadata that a detector needs in addition to the image."""
    if config.get('default_scope') != 'mmdet':
        return None
    from mmdet.structures import DetDataSample
    return [DetDataSample(metainfo=dict(img_shape=shape, ori_shape=shape, pad_shape=shape, batch_input_shape=shape,
                                        scale_factor=(1., 1.)))]


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _parts(model: nn.Module, counter: MacCounter) -> list[Part]:
    parts = []
    for name, child in model.named_children():
        if name == 'data_preprocessor':
            continue
        parts.append(Part(name, _parameters(child), counter.part(name)))
        attentions = getattr(child, _ATTENTIONS, None)
        if isinstance(attentions, nn.Module):
            parts.append(Part(_ATTENTIONS, _parameters(attentions), counter.part(f'{name}.{_ATTENTIONS}'), inside=name))
    top = [part for part in parts if not part.inside]
    rest = Part(REST, _parameters(model) - sum(part.parameters for part in top),
                counter.macs - sum(part.macs for part in top))
    return parts + ([rest] if rest.parameters or rest.macs else [])


def conclusions(results: Sequence[Complexity]) -> list[str]:
    """Return one line per config."""
    lines = []
    for result in results:
        regions = '' if result.proposals is None else f', second stage on {result.proposals} regions'
        left_out = sum(elements for _, _, elements in result.uncounted)
        lines.append(
            f'{result.config}: {result.parameters / 1e6:.3f} M parameters, {result.macs / 1e9:.4f} GMAC (multiply-'
            f'accumulates of convolutions and matrix products; FLOPs are twice that) at {result.shape[0]}×'
            f'{result.shape[1]}{regions}; not counted: {len(result.uncounted)} kinds of operators with '
            f'{left_out / 1e6:.1f} M elements')
    return lines


def write(folder: Path, results: Sequence[Complexity]) -> list[Path]:
    """Write ``flops.csv`` (rows: parts), ``uncounted.csv`` (rows: operators), ``flops.md`` with both, ``flops.png``."""
    table, uncounted, report = folder / 'flops.csv', folder / 'uncounted.csv', folder / 'flops.md'
    rows = []
    for result in results:
        parts = [*result.parts, Part(TOTAL, result.parameters, result.macs)]
        rows += [dict(config=result.config, part=f'{part.inside}.{part.name}' if part.inside else part.name,
                      parameters=part.parameters, macs=part.macs, input_height=result.shape[0],
                      input_width=result.shape[1]) for part in parts]
    write_csv(table, rows, COLUMNS)
    write_csv(uncounted, (dict(zip(UNCOUNTED_COLUMNS, (result.config, *entry), strict=True))
                          for result in results for entry in result.uncounted), UNCOUNTED_COLUMNS)
    with whole_file(report, 'w') as file:
        file.write('\n'.join(markdown(results)) + '\n')
    picture = folder / 'flops.png'
    write_figure(picture, figure(results))
    return [table, uncounted, report, picture]


def figure(results: Sequence[Complexity]) -> Figure:
    """Draw bars of parameters and MACs per config, with the share of the layer attentions in dark."""
    drawn = new_figure(11, 1.6 + 0.3 * len(results))
    rows = range(len(results))
    for number, (title, unit, value) in enumerate((('parameters', 1e6, 'parameters'), ('GMAC', 1e9, 'macs'))):
        axes = drawn.add_subplot(1, 2, number + 1)
        totals = [getattr(result, value) / unit for result in results]
        attentions = [sum(getattr(part, value) for part in result.parts if part.name == _ATTENTIONS) / unit
                      for result in results]
        axes.barh(rows, totals, color='tab:blue', alpha=0.45, label='complete model')
        axes.barh(rows, attentions, color='tab:blue', label='layer attention')
        for row, total in zip(rows, totals, strict=True):
            axes.annotate(f'{total:.4g}', (total, row), (3, 0), textcoords='offset points', va='center', fontsize=8)
        axes.set_yticks(rows, [f'{result.config} ({result.shape[0]}×{result.shape[1]})' for result in results]
                        if number == 0 else [''] * len(results), fontsize=8)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_xlabel('million parameters' if number == 0 else title)
    axes.legend(fontsize=8, loc='lower right')
    return drawn


def markdown(results: Sequence[Complexity]) -> list[str]:
    """Format a table of all configs with their parts, and the uncounted operators."""
    lines = ['MAC: one multiply-accumulate; FLOPs are twice that. Counted: convolutions and matrix products.', '',
             '| config | input | part | parameters | GMAC |', '| --- | --- | --- | ---: | ---: |']
    for result in results:
        shape = f'{result.shape[0]}×{result.shape[1]}'
        lines.append(f'| {result.config} | {shape} | **total** | {result.parameters:,} | {result.macs / 1e9:.4f} |')
        for part in result.parts:
            name = f'of which {part.name}' if part.inside else part.name
            lines.append(f'| | | {name} | {part.parameters:,} | {part.macs / 1e9:.4f} |')
    lines += ['', 'Not counted (calls; millions of output elements):', '']
    for result in results:
        listed = ', '.join(f'{name} ({calls}; {elements / 1e6:.2f})' for name, calls, elements in result.uncounted)
        lines.append(f'* {result.config}: {listed}')
        if result.without_rule:
            lines.append(f'  * without a FLOP rule, so the MACs are a lower bound: {", ".join(result.without_rule)}; '
                         + RULE_HINT)
    regions = [f'{result.config}: {result.proposals}' for result in results if result.proposals is not None]
    if regions:
        lines += ['', 'Regions in the second stage of detectors (depends on the weights, here random, and on the '
                  'image, here zeros): ' + ', '.join(regions) + '.']
    return lines

