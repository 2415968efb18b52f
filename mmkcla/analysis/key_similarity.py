"""(a) How alike the keys of a stage's layers are: the cosine of all pairs."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..utils.figures import new_figure, sparse_ticks, write_figure
from ..utils.tables import write_csv
from ..utils.text import note, plural
from .subject import Subject, each_image

COLUMNS = ('config', 'method', 'weights', 'stage', 'layer_i', 'layer_j', 'cosine', 'cosine_std', 'images')


@dataclass
class Similarity:
    """Cosines in a stage: mean over heads and images, and the standard deviation over images (n − 1; of each image's
    mean over heads), both ``(D, D)``; NaN for one image."""

    subject: Subject
    stage: int
    images: int
    mean: np.ndarray
    std: np.ndarray

    def at_distance(self, distance: int) -> float:
        """Mean over the pairs of layers that are ``distance`` apart."""
        return float(np.diagonal(self.mean, distance).mean())


def cosines(stage_keys: Tensor) -> Tensor:
    """Cosine of all pairs per head, mean over heads: ``(D, B, G, d) -> (B, D, D)``; 0 if a key is zero."""
    unit = F.normalize(stage_keys.double(), dim=-1)
    return torch.einsum('ibgd,jbgd->bgij', unit, unit).mean(1)


@torch.no_grad()
def key_similarity(subject: Subject, images: list[Path]) -> list[Similarity]:
    """The similarities of all stages; ``stage_keys`` of each method defines the keys."""
    found: dict[int, list[Tensor]] = {}
    zeros: Counter[int] = Counter()
    for _, stages in each_image(subject, images):
        for stage in stages:
            keys = stage.keys()
            zeros[stage.number] += int((keys == 0).all(-1).sum())
            found.setdefault(stage.number, []).append(cosines(keys)[0].cpu())
    for number, count in zeros.items():
        if count:
            note(f'{subject.title}, stage {number}: keys that are zero: {count} in '
                 f'{plural(len(images), "image")}; they have no angle, and their cosines count as 0')
    results = []
    for number, of_images in found.items():
        stacked = torch.stack(of_images).numpy()
        std = stacked.std(0, ddof=1) if len(stacked) > 1 else np.full(stacked.shape[1:], np.nan)
        results.append(Similarity(subject, number, len(stacked), stacked.mean(0), std))
    return results


def conclusions(results: list[Similarity]) -> list[str]:
    """One line per stage: the mean cosine of neighbouring layers, and of the layers furthest apart."""
    lines = []
    for result in results:
        start = f'{result.subject.title}, stage {result.stage}: '
        last = len(result.mean) - 1
        if last == 0:
            lines.append(start + 'one layer, no pairs')
            continue
        apart = f', of layers {last} apart {result.at_distance(last):.3f}' if last > 1 else ''
        lines.append(f'{start}keys of neighbouring layers have mean cosine {result.at_distance(1):.3f}{apart} '
                     f'({plural(result.images, "image")})')
    return lines


def write(folder: Path, results: list[Similarity]) -> list[Path]:
    """``key_similarity.csv`` with a row a pair (i ≤ j), and a heat map for each subject."""
    table = folder / 'key_similarity.csv'
    write_csv(table, (
        dict(config=r.subject.label, method=r.subject.method, weights=r.subject.weights, stage=r.stage, layer_i=i + 1,
             layer_j=j + 1, cosine=float(r.mean[i, j]), cosine_std=float(r.std[i, j]) if r.images > 1 else None,
             images=r.images)
        for r in results for i in range(len(r.mean)) for j in range(i, len(r.mean))), COLUMNS)
    written = [table]
    for subject in {id(r.subject): r.subject for r in results}.values():
        path = folder / f'key_similarity_{subject.label}.png'
        _draw(path, subject, [r for r in results if r.subject is subject])
        written.append(path)
    return written


def _draw(path: Path, subject: Subject, results: list[Similarity]) -> None:
    figure = new_figure(2.9 * len(results) + 1.2, 4.1)
    axes = figure.subplots(1, len(results), squeeze=False)[0]
    for axis, result in zip(axes, results, strict=True):
        depth = len(result.mean)
        image = axis.imshow(result.mean, vmin=-1, vmax=1, cmap='RdBu_r')
        ticks = sparse_ticks(depth)
        axis.set_xticks(ticks, [tick + 1 for tick in ticks])
        axis.set_yticks(ticks, [tick + 1 for tick in ticks])
        axis.set(title=f'stage {result.stage}', xlabel='layer j')
        for i in range(depth if depth <= 6 else 0):
            for j in range(depth):
                value = result.mean[i, j]
                axis.text(j, i, f'{value:.2f}', ha='center', va='center', fontsize=8 if depth < 5 else 6.5,
                          color='white' if abs(value) > 0.6 else 'black')
    axes[0].set_ylabel('layer i')
    figure.colorbar(image, ax=axes, label='cosine of the keys', shrink=0.7)
    figure.suptitle(f'{subject.label}\n{subject.method}, {subject.weights}, {plural(results[0].images, "image")}',
                    fontsize=10)
    write_figure(path, figure)
