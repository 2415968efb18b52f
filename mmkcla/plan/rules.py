"""The rules: from numbers of a fingerprint and a machine to settings, each with its reason.

Pure functions; docs/plan.md has them as a table. Where a number is a rule of thumb of this project rather than a
published one, the table says so.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..utils.text import plural
from .machine import Machine

_GIB = 2 ** 30
MEMORY_SHARE = 0.6  # for activations; the rest is for weights, optimizer, workspaces and fragmentation

# What autograd keeps for the backward pass in float32, in bytes per input pixel, with KCLA: measured with
# saved_tensors_hooks (tests/plan/test_memory.py measures it again). Detection: backbone, FPN and RPN.
BYTES_PER_PIXEL = {'detection-small': 400, 'detection-base': 2910, 'unet-small': 1650, 'unet-r34': 1330,
                   'resnet18': 575, 'resnet50': 2650, 'cifar20': 5430}
# RoI heads, per image, from the shapes: 512 RoIs of 256×7×7; 128 masks of 256×14×14 in five maps and of 256×28×28
BYTES_PER_IMAGE = {'box': 40 * 2 ** 20, 'mask': 280 * 2 ** 20}


@dataclass(frozen=True)
class Setting:
    """A value of the config and its reason, written next to it as a comment."""

    value: Any
    reason: str


def round_up(value: float, multiple: int) -> int:
    """The next multiple that is not smaller."""
    return math.ceil(value / multiple) * multiple


def network_size(machine: Machine, asked: str | None) -> Setting:
    """``'base'`` on a GPU of at least 8 GiB, else ``'small'``; what was asked for wins."""
    if asked:
        return Setting(asked, f'--size {asked}')
    size = 'base' if machine.gpu and machine.memory >= 8 else 'small'
    return Setting(size, f'planned for {machine}; base needs a GPU of at least 8 GiB')


def detection_size(longer: Mapping[str, float], objects: Mapping[str, float], machine: Machine) -> Setting:
    """Longer side of the resized image: the median of the longer sides, up to twice that for small objects.

    Args:
        longer: quantiles of the images' longer sides, in pixels.
        objects: quantiles of the objects' sides (square root of the area), in pixels.
        machine: a CPU limits the side to 512, a GPU to 1344.
    """
    median, small = longer['50'], objects['10']
    factor = min(2., max(1., 16 / small)) if small > 0 else 1.
    limit = 1344 if machine.gpu else 512
    wanted = max(64, round_up(median * factor, 32))
    reason = f'median longer side {median:g} px'
    if factor > 1:
        reason += f' × {factor:.2g}, since a tenth of the objects is smaller than {small:.3g} px'
    reason += ', rounded up to a multiple of 32'
    if wanted > limit:
        reason += f', at most {limit} on a {"GPU" if machine.gpu else "CPU"}'
    return Setting(min(wanted, limit), reason)


def segmentation_size(width: Mapping[str, float], height: Mapping[str, float], machine: Machine) -> Setting:
    """Width and height that images are resized to: their medians, with a longer side of 64 to 512 (256 on a CPU)."""
    limit = 512 if machine.gpu else 256
    medians = width['50'], height['50']
    factor = min(1., limit / round_up(max(medians), 32))
    value = tuple(max(64, round_up(side * factor, 32)) for side in medians)
    reason = f'median {medians[0]:g} × {medians[1]:g} px'
    if factor < 1:
        reason += f' × {factor:.2g} for a longer side of at most {limit}'
    return Setting(value, reason + ', rounded up to multiples of 32')


def classification_size(shorter: Mapping[str, float], machine: Machine) -> Setting:
    """Side of the network's input: up to 64 px for the CIFAR ResNet, then up to 224 (128 on a CPU)."""
    median = shorter['50']
    if median <= 64:
        return Setting(max(16, round_up(median, 8)),
                       f'median shorter side {median:g} px, rounded up to a multiple of 8, at least 16')
    limit = 224 if machine.gpu else 128
    side = min(limit, round_up(median, 32))
    return Setting(side, f'median shorter side {median:g} px, rounded up to a multiple of 32, at most {limit} on a '
                   f'{"GPU" if machine.gpu else "CPU"}')


def batch_size(machine: Machine, pixels: int, network: str, images: int, most: int, extra: int = 0,
               least: int = 2) -> Setting:
    """The largest power of two that fits the memory, is at most ``most``, and gives an epoch 8 iterations.

    Args:
        machine: its memory counts by :data:`MEMORY_SHARE`.
        pixels: of an image as the network gets it.
        network: a key of :data:`BYTES_PER_PIXEL`.
        images: to train on.
        most: limit.
        extra: further bytes per image.
        least: what batch norm needs, whatever the number of images; memory may allow less.
    """
    need = pixels * BYTES_PER_PIXEL[network] + extra
    fits = int(MEMORY_SHARE * machine.memory * _GIB / need)
    room = f'{MEMORY_SHARE:.0%} of {machine.memory} GiB at {need / 2**20:.0f} MiB an image'
    limits = {fits: f'{fits} fit into {room}' if fits else f'not even one fits into {room}: lower image_size',
              max(least, images // 8): f'{plural(images, "training image")}, ' + (
                  'at least 8 iterations an epoch' if images // 8 > least else f'at least {least} for batch norm'),
              most: f'at most {most}'}
    limit = min(limits)
    value = 2 ** int(math.log2(max(1, limit)))
    return Setting(value, limits[limit])


def learning_rate(base: float, base_batch: int, batch: int, source: str) -> Setting:
    """Linear scaling: the recipe's rate times this batch over the recipe's."""
    value = float(f'{base * batch / base_batch:.3g}')
    return Setting(value, f'{base:g} for {base_batch} images an iteration ({source}), scaled to {batch}')


def epochs(images: int, batch: int, iterations: int, least: int, most: int) -> Setting:
    """About ``iterations`` iterations, within ``least`` and ``most`` epochs."""
    each = max(1, math.ceil(images / batch))
    wanted = math.ceil(iterations / each)
    value = min(most, max(least, wanted))
    reason = f'{plural(each, "iteration")} an epoch; {value * each} iterations'
    if value != wanted:
        reason += f' (aim: {iterations}, within {least} to {most} epochs)'
    return Setting(value, reason)


def warmup(iterations: int) -> int:
    """Iterations of warm-up: a tenth of all, at most 500 as in the hosts' schedules."""
    return max(1, min(500, iterations // 10))


def anchor_scale(relative: Mapping[str, float], side: int) -> Setting:
    """The anchors' scale: 8 as in the host's config, less where the smallest anchor would miss small objects.

    The smallest anchor is ``4 × scale`` px wide (stride 4). Two squares whose sides differ by √2 overlap by half,
    which is the least that a match needs; so it may exceed the 5 % quantile of the sides by √2.

    Args:
        relative: quantiles of the objects' sides over the longer sides of their images.
        side: longer side of the resized images, in pixels.
    """
    small = relative['5'] * side
    scale = min(8, max(2, int(math.sqrt(2) * small / 4)))
    reason = f'5 % of the objects are smaller than {small:.3g} px in the resized image; anchors are {4 * scale} to '
    return Setting(scale, reason + f'{64 * scale} px')


def anchor_ratios(ratios: Mapping[str, float]) -> Setting:
    """Powers of two within a factor √2 of the objects' 5 to 95 % range of height over width, and 1."""
    low, high = ratios['5'] / math.sqrt(2), ratios['95'] * math.sqrt(2)
    chosen = [ratio for ratio in (0.125, 0.25, 0.5, 1., 2., 4., 8.) if ratio == 1 or low <= ratio <= high]
    return Setting(chosen, f'90 % of the objects have height/width {ratios["5"]:.2g} to {ratios["95"]:.2g}')


def detections(objects_per_image: float) -> Setting:
    """Detections kept per image: 100 as in the host's config, or half again as many as the fullest image has."""
    value = max(100, math.ceil(1.5 * objects_per_image))
    return Setting(value, f'the fullest image has {plural(int(objects_per_image), "object")}')


def workers(machine: Machine) -> Setting:
    """Processes that load data."""
    if not machine.gpu:
        return Setting(0, 'on a CPU loading would compete with training')
    return Setting(min(4, machine.processors), 'at most 4, one a processor')
