"""Time and memory of spatial attentions against the number of positions n = H·W.

Each measurement runs in a separate process, which isolates its peak memory and out-of-memory failures.
"""
from __future__ import annotations

import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import nn

from ..layers import DotProductAttention2d, EfficientAttention
from ..utils.files import whole_file
from ..utils.tables import write_csv

OUT_OF_MEMORY = 'out of memory'
NON_LOCAL = 'NonLocal2d (mmcv)'
MODULES = {
    'EfficientAttention softmax': lambda channels, keys: EfficientAttention(channels, keys),
    'EfficientAttention scaling': lambda channels, keys: EfficientAttention(channels, keys, normalization='scaling'),
    'DotProductAttention2d softmax': lambda channels, keys: DotProductAttention2d(channels, keys),
    NON_LOCAL: lambda channels, keys: _non_local(channels, keys),
}


@dataclass(frozen=True)
class Point:
    """One measurement of a forward and backward pass on one map.

    ``seconds`` is the median of the repeats, ``megabytes`` (2^20 bytes) the peak above the memory used before. Both are
    None if ``status`` is not ``done``.
    """

    module: str
    side: int
    positions: int
    status: str
    seconds: float | None = None
    megabytes: float | None = None


def measure(sides: Sequence[int], channels: int, key_channels: int, memory_limit: float, repeats: int = 3,
            modules: Sequence[str] = tuple(MODULES)) -> Iterator[Point]:
    """Measure every module on maps of ``side × side``, batch size 1, float32, until it fails.

    Args:
        sides: sides of the maps, in pixels, in ascending order.
        channels: channels C of the map.
        key_channels: channels of keys and values.
        memory_limit: memory limit of a process in GiB (address space in addition to that of torch, or GPU memory).
        repeats: number of timed forward and backward passes.
        modules: names in :data:`MODULES`.

    Yields:
        The points, module by module. After the first failure of a module, larger sides have the status ``skipped``.
    """
    for name in modules:
        failed = False
        for side in sides:
            point = (Point(name, side, side * side, 'skipped') if failed else
                     _in_own_process(name, side, channels, key_channels, memory_limit, repeats))
            failed |= point.status != 'done'
            yield point


def _in_own_process(*args: object) -> Point:
    context = multiprocessing.get_context('spawn')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_here, args=(sender, *args), daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:  # killed by the system because of its memory use
        return Point(args[0], args[1], args[1] ** 2, OUT_OF_MEMORY)
    finally:
        process.join()
        receiver.close()


def _measure_here(sender: multiprocessing.connection.Connection, name: str, side: int, channels: int,
                  key_channels: int, memory_limit: float, repeats: int) -> None:
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device('cuda' if cuda else 'cpu')
    module = MODULES[name](channels, key_channels).to(device)
    warm = torch.randn(1, channels, 8, 8, device=device)
    module(warm).sum().backward()  # warm-up: excludes torch's own allocations of the first step
    x = torch.randn(1, channels, side, side, device=device, requires_grad=True)
    _limit(memory_limit, cuda)
    before = _peak(cuda)
    seconds = []
    try:
        for _ in range(repeats):
            started = _now(cuda)
            module(x).sum().backward()
            seconds.append(_now(cuda) - started)
        point = Point(name, side, side * side, 'done', statistics.median(seconds), (_peak(cuda) - before) / 2**20)
    except (MemoryError, RuntimeError) as error:  # a CPU allocator's failure is a plain RuntimeError
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and 'memory' not in str(error):
            raise
        point = Point(name, side, side * side, OUT_OF_MEMORY)
    sender.send(point)
    sender.close()


def _limit(gibibytes: float, cuda: bool) -> None:
    if cuda:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(gibibytes * 2**30 / total, 1.))
        return
    with open('/proc/self/statm', encoding='ascii') as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + int(gibibytes * 2**30), hard))


def _peak(cuda: bool) -> int:
    if cuda:
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _now(cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def _non_local(channels: int, key_channels: int) -> nn.Module:
    from mmcv.cnn import NonLocal2d
    return NonLocal2d(channels, reduction=channels // key_channels, use_scale=False, mode='embedded_gaussian')


def exponent(points: Sequence[Point], quantity: str) -> float | None:
    """Exponent of n for ``seconds`` or ``megabytes``, by least squares on logarithms over the larger half of the
    completed points; None for fewer than two points."""
    done = [point for point in points if point.status == 'done' and (getattr(point, quantity) or 0) > 0]
    done = done[-max(2, (len(done) + 1) // 2):]
    if len(done) < 2:
        return None
    xs = [math.log(point.positions) for point in done]
    ys = [math.log(getattr(point, quantity)) for point in done]
    return statistics.linear_regression(xs, ys).slope


def conclusions(points: Sequence[Point]) -> list[str]:
    """Return one line per module with its growth and the size at which it ran out of memory."""
    lines = []
    for name in dict.fromkeys(point.module for point in points):
        own = [point for point in points if point.module == name]
        parts = [f'{what} ∝ n^{power:.2f}' for quantity, what in (('seconds', 'time'), ('megabytes', 'memory'))
                 if (power := exponent(own, quantity)) is not None]
        failed = next((point for point in own if point.status == OUT_OF_MEMORY), None)
        parts += [f'out of memory at {failed.side}²'] if failed else []
        lines.append(f'{name}: {", ".join(parts) or "nothing measured"}')
    return lines


def write_points(path: Path, points: Sequence[Point]) -> None:
    """Write one row per point as CSV."""
    write_csv(path, map(asdict, points), [field.name for field in fields(Point)], digits=None)


def draw_points(path: Path, points: Sequence[Point]) -> None:
    """Draw time and memory against n on logarithmic axes. A cross marks where a module ran out of memory."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), layout='constrained')
    for name in dict.fromkeys(point.module for point in points):
        own = [point for point in points if point.module == name and point.status == 'done']
        failed = next((point for point in points if point.module == name and point.status == OUT_OF_MEMORY), None)
        for axis, quantity in zip(axes, ('seconds', 'megabytes'), strict=True):
            # the peak of a small map may be hidden by torch's own memory
            shown = [point for point in own if getattr(point, quantity) > 0]
            if not shown:
                continue
            line, = axis.plot([point.positions for point in shown], [getattr(point, quantity) for point in shown],
                              marker='o', label=name)
            if failed:
                axis.axvline(failed.positions, color=line.get_color(), linestyle=':', linewidth=1)
                axis.plot(failed.positions, getattr(shown[-1], quantity), marker='x', markersize=9,
                          color=line.get_color(), linestyle='none')
    for axis, label in zip(axes, ('forward + backward [s]', 'peak memory [MiB]'), strict=True):
        axis.set(xscale='log', yscale='log', xlabel='positions n = H·W', ylabel=label)
        axis.grid(alpha=0.3, which='both')
    if axes[0].lines:
        axes[0].legend(fontsize=9)
    figure.suptitle('crosses: out of memory', fontsize=9, x=0.99, ha='right')
    with whole_file(path, 'wb') as file:
        figure.savefig(file, format='png', dpi=110)
    pyplot.close(figure)
