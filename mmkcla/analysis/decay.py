"""(b) How fast earlier layers fade: the share of each earlier layer in each layer's output."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..layers.inspection import CARRY
from ..utils.figures import new_figure, write_figure
from ..utils.tables import write_csv
from ..utils.text import note, plural
from .subject import Subject, each_image

COLUMNS = ('config', 'method', 'weights', 'stage', 'layer', 'from_layer', 'layers_back', 'share', 'share_std',
           'relative', 'with_norm', 'images')


@dataclass
class Share:
    """The share of ``token`` (a layer's number, or :data:`~mmkcla.layers.inspection.CARRY`) in the output of ``layer``.

    ``mean``: of its absolute value over images and heads (channels for MRLA-light and DLA-L); ``std``: over images
    (n − 1) of the mean over heads, None for one image; ``relative``: of the absolute values made to sum to 1 over the
    tokens, over the images and heads where not all are 0, None if there are none; ``with_norm``: as ``mean``, with the
    batch norms on the way (None where there are none). What a share is, each method's ``layer_shares`` says.
    """

    subject: Subject
    stage: int
    layer: int
    token: int
    images: int
    mean: float
    std: float | None
    relative: float | None
    with_norm: float | None

    @property
    def back(self) -> int | None:
        """Distance in layers, 0 for the layer itself; None for the carry."""
        return None if self.token == CARRY else self.layer - self.token


@torch.no_grad()
def decay(subject: Subject, images: list[Path]) -> list[Share]:
    """The shares of all tokens in the outputs of all layers. Where all shares of a head are 0, a note says so."""
    found: dict[tuple[int, int, int], list[tuple[float, float, float | None]]] = {}
    zeros: Counter[tuple[int, int]] = Counter()
    for _, stages in each_image(subject, images):
        for stage in stages:
            for position in range(stage.depth):
                parts = stage.shares(position)
                size = parts.weights.abs()
                total = size.sum(0)
                relative = (size / total)[:, total > 0]  # elsewhere there is no ratio
                zeros[stage.number, position + 1] += int((total == 0).sum())
                for number, token in enumerate(parts.tokens):
                    with_norm = None if parts.with_norm is None else float(parts.with_norm[number].abs().mean())
                    found.setdefault((stage.number, position + 1, token), []).append(
                        (float(size[number].mean()), float(relative[number].mean()), with_norm))  # NaN without any
    for (number, layer), count in zeros.items():
        if count:
            note(f'{subject.title}, stage {number}, layer {layer}: all shares are 0 in {count} of the heads or '
                 f'channels of {plural(len(images), "image")}; relative shares are without them')
    results = []
    for (stage, layer, token), values in found.items():
        means, all_relatives, with_norms = zip(*values, strict=True)
        relatives = [value for value in all_relatives if not math.isnan(value)]
        results.append(Share(
            subject, stage, layer, token, len(values), float(np.mean(means)),
            float(np.std(means, ddof=1)) if len(values) > 1 else None,
            float(np.mean(relatives)) if relatives else None,
            None if with_norms[0] is None else float(np.mean(with_norms))))
    return results


def conclusions(results: Sequence[Share]) -> list[str]:
    """One line per stage: the shares of the last and the first layer in the output of the last layer."""
    lines = []
    for subject, stage, own in _by_stage(results):
        last = own[0].layer
        by_token = {share.token: share for share in own}
        parts = [f'its own share {by_token[last].mean:.3f}' if last in by_token else 'no share of its own map']
        if 1 in by_token and last > 1:
            parts.append(f'of layer 1 {by_token[1].mean:.3f}')
        if CARRY in by_token:
            parts.append(f'of what was carried over {by_token[CARRY].mean:.3f}')
        note = '' if own[0].with_norm is None else ' (|Πλ|, not normalised)'
        if 1 in by_token and last > 1 and by_token[1].with_norm is not None:
            note = f' (|Πλ|, not normalised; with the batch norms layer 1 has {by_token[1].with_norm:.3f})'
        lines.append(f'{subject.title}, stage {stage}, output of layer {last}: {", ".join(parts)}{note}, '
                     f'{plural(own[0].images, "image")}')
    return lines


def _by_stage(results: Sequence[Share]) -> list[tuple[Subject, int, list[Share]]]:
    """The shares in the last layer's output of each stage of each subject."""
    groups: dict[tuple[int, int], list[Share]] = {}
    for share in results:
        groups.setdefault((id(share.subject), share.stage), []).append(share)
    return [(own[0].subject, stage, [share for share in own if share.layer == max(s.layer for s in own)])
            for (_, stage), own in groups.items()]


def write(folder: Path, results: Sequence[Share]) -> list[Path]:
    """``decay.csv`` with all shares, and ``decay.png`` with those in the output of each stage's last layer."""
    table, picture = folder / 'decay.csv', folder / 'decay.png'
    write_csv(table, (
        dict(config=s.subject.label, method=s.subject.method, weights=s.subject.weights, stage=s.stage, layer=s.layer,
             from_layer='carry' if s.token == CARRY else s.token, layers_back=s.back, share=s.mean, share_std=s.std,
             relative=s.relative, with_norm=s.with_norm, images=s.images) for s in results), COLUMNS)
    _draw(picture, results)
    return [table, picture]


def _draw(path: Path, results: Sequence[Share]) -> None:
    from matplotlib.ticker import MaxNLocator
    stages = sorted({share.stage for share in results})
    subjects = list({id(share.subject): share.subject for share in results}.values())
    figure = new_figure(max(3.2 * len(stages), 6.5), 3.6 + 0.2 * len(subjects))
    axes = figure.subplots(1, len(stages), sharey=True, squeeze=False)[0]
    groups = _by_stage(results)
    for number, subject in enumerate(subjects):
        for axis, stage in zip(axes, stages, strict=True):
            own = next((own for s, n, own in groups if s is subject and n == stage), None)
            if own is None:
                continue
            points = sorted((share.back, share.mean) for share in own if share.back is not None)
            colour = f'C{number % 10}'
            axis.plot(*zip(*points, strict=True), marker='o', markersize=4, color=colour,
                      label=subject.title if axis is axes[0] else None)
            norms = sorted((share.back, share.with_norm) for share in own if share.with_norm is not None)
            if norms:
                axis.plot(*zip(*norms, strict=True), linestyle=':', marker='.', color=colour,
                          label='… with its batch norms' if axis is axes[0] else None)
            for share in own:
                if share.token == CARRY:
                    axis.plot(share.layer, share.mean, marker='s', linestyle='none', color=colour, fillstyle='none')
    for axis, stage in zip(axes, stages, strict=True):
        positive = any((line.get_ydata() > 0).any() for line in axis.lines)
        axis.set(title=f'stage {stage}', xlabel='layers back', yscale='log' if positive else 'linear')
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel('share in the last layer\'s output')
    if any(share.token == CARRY for share in results):
        axes[0].plot([], [], marker='s', linestyle='none', color='grey', fillstyle='none',
                     label='what was carried over from earlier stages (one token)')
    figure.legend(loc='outside lower left', fontsize=8, frameon=False)
    figure.suptitle('Share of earlier layers (mean over heads or channels and '
                    f'{plural(results[0].images, "image")})', fontsize=10)
    write_figure(path, figure)
