"""(d) What the layer attentions cost against the depth D of a stage: alone, without a trunk."""
from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ..errors import UserError
from ..layers import known_layer_attentions, layer_attention_class
from ..utils.figures import new_figure, write_figure
from ..utils.tables import write_csv
from ..utils.text import did_you_mean
from .count import RULE_HINT, MacCounter

VARIANTS = {'SoftmaxLayerAttention, literal': dict(type='SoftmaxLayerAttention', literal=True)}
DEPTHS = (8, 16, 32, 64, 128, 256, 512)
QUANTITIES = {
    'macs': 'MACs', 'saved_bytes': 'kept for backward', 'state_bytes': 'live state',
    'inference_seconds': 'inference time', 'training_seconds': 'training time',
}


@dataclass(frozen=True)
class Point:
    """One stage of ``depth`` layers.

    * ``parameters``: trainable numbers;
    * ``macs``: of one inference: convolutions and matrix products, plus one per element of element-wise
      multiplications and batch norms (:class:`~.count.MacCounter`), since the mixing of maps is element-wise;
    * ``matrix_macs``: of these, convolutions and matrix products;
    * ``saved_bytes``: kept for the backward pass after a forward in training mode, every storage once, parameters left
      out; the layers' input maps are among them where a layer keeps them;
    * ``state_bytes``: of the state after the last layer in inference, every storage once;
    * ``uncounted``: output elements of the operators that are not in ``macs``, by name;
    * ``without_rule``: of these, the operators that may hold multiply-accumulates; ``macs`` is too low with any;
    * ``inference_seconds``, ``training_seconds``: of all layers, medians of the repeats; training is forward and
      backward. Per layer: divided by ``depth`` (the two ``…_per_layer`` columns of the CSV). On one thread of a CPU it
      is the process's own time, which other programs hardly change; else the wall clock's.

    ``status`` is ``done``, or why there are no numbers.
    """

    method: str
    depth: int
    status: str
    parameters: int | None = None
    macs: int | None = None
    matrix_macs: int | None = None
    saved_bytes: int | None = None
    state_bytes: int | None = None
    inference_seconds: float | None = None
    training_seconds: float | None = None
    uncounted: dict[str, int] = field(default_factory=dict)
    without_rule: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether there are measurements."""
        return self.status == 'done'


def known_methods() -> dict[str, dict]:
    """The modules that can be measured: every known layer attention by its class name, and :data:`VARIANTS`."""
    return {name: dict(type=name) for name in known_layer_attentions()} | VARIANTS


def default_methods() -> list[str]:
    """The names of the package's own methods that attend to layers, and of :data:`VARIANTS`; KCLA first."""
    package = __name__.partition('.')[0]
    kinds = {name: layer_attention_class(method['type']) for name, method in known_methods().items()}
    own = [name for name, kind in kinds.items() if kind.__module__.startswith(f'{package}.') and not kind.own_map_alone]
    return sorted(own, key=lambda name: (name != 'KCLA', name))


def methods_without(option: str, methods: Sequence[str]) -> list[str]:
    """The ``methods`` without the option ``option``."""
    known = known_methods()
    return [name for name in methods if name in known
            and option not in layer_attention_class(known[name]['type']).options()]


class _OverLimit(Exception):
    """A training forward exceeded a time or memory limit."""


def measure(depths: Sequence[int] = DEPTHS, methods: Sequence[str] | None = None, channels: int = 64,
            size: int = 8, batch: int = 1, repeats: int = 3, limit: float = 60., memory_limit: float = 4.,
            options: dict | None = None, device: torch.device | str = 'cpu') -> Iterator[Point]:
    """Measure stages of ``channels`` at maps of ``size × size``, ``batch`` samples, float32.

    Every layer is given a map of its own, drawn beforehand, and ``x + retrieved`` is computed after it, which is also
    the next layer's shortcut.

    Args:
        depths: rising numbers of layers.
        methods: names of :func:`known_methods`; None: those of :func:`default_methods`.
        channels, size, batch: of the maps, ``(batch, channels, size, size)``.
        repeats: of the timed runs.
        limit: seconds that a forward and backward may take; a slower one is the method's last.
        memory_limit: GiB that a forward may keep for backward; it is stopped beyond, and the method with it.
        options: for every method that takes them; drop path is 0 otherwise, other options are the method's defaults.
        device: where.

    Yields:
        The points, method by method; after a limit, points that say ``skipped: …``.

    Raises:
        UserError: an unknown method, or depths that are not positive.
    """
    methods, known = default_methods() if methods is None else methods, known_methods()
    for name in methods:
        if name not in known:
            raise UserError(f'unknown method {name!r}; known are: {"; ".join(known)}{did_you_mean(name, known)}')
    if not depths or min(depths) < 1:
        raise UserError(f'depths are positive numbers of layers, got {" ".join(map(str, depths)) or "none"}')
    for name in methods:
        stopped = None
        for depth in sorted(set(depths)):
            if stopped:
                yield Point(name, depth, f'skipped: {stopped}')
                continue
            try:
                point, seconds = _measure(name, depth, (batch, channels, size, size), repeats, limit, memory_limit,
                                          options or {}, device)
            except _OverLimit as error:
                stopped = f'depth {depth} {error}'
                yield Point(name, depth, f'stopped: {error}')
                continue
            if seconds > limit:
                stopped = f'depth {depth} took {seconds:.0f} s, the limit is {limit:g} s'
            yield point


def _measure(name: str, depth: int, shape: tuple[int, int, int, int], repeats: int, limit: float, memory_limit: float,
             options: dict, device: torch.device | str) -> tuple[Point, float]:
    arguments = dict(known_methods()[name])
    method = layer_attention_class(arguments.pop('type'))
    arguments |= {option: value for option, value in {'drop_path': 0., **options}.items() if option in method.options()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = method.build_stage(shape[1], depth, **arguments).to(device)
        maps = [torch.randn(shape).to(device) for _ in range(depth)]
    parameters = sum(parameter.numel() for parameter in layers.parameters())

    layers.train()
    started, clock = time.perf_counter(), time.process_time()
    saved, outputs = _saved_bytes(layers, [x.requires_grad_() for x in maps], memory_limit, started + limit)
    torch.autograd.backward(outputs, [torch.ones_like(out) for out in outputs])
    _wait(device)
    first = time.perf_counter() - started
    first_own = time.process_time() - clock if _alone(device) else first
    del outputs
    slow = first > limit

    def train() -> None:
        outputs = _run(layers, maps)[0]
        torch.autograd.backward(outputs, [torch.ones_like(out) for out in outputs])

    training = first_own if slow else _median_time(train, repeats, device)
    layers.eval()
    layers.zero_grad(set_to_none=True)
    maps = [x.detach() for x in maps]
    with torch.inference_mode():
        state = _run(layers, maps, last_only=True)[1]
        inference = _median_time(lambda: _run(layers, maps, last_only=True), 1 if slow else repeats, device)
        with MacCounter() as counter:
            _run(layers, maps, last_only=True)
    point = Point(name, depth, 'done', parameters, counter.macs + counter.elementwise, counter.macs, saved,
                  _bytes_of(state), inference, training, dict(counter.elements), sorted(counter.without_rule))
    return point, first


def _run(layers: nn.ModuleList, maps: list[Tensor], last_only: bool = False) -> tuple[list[Tensor], tuple]:
    """Run all layers in sequence; return ``x + retrieved`` (of all layers or the last one) and the last state."""
    state, outputs = None, []
    out = maps[0]
    for layer, x in zip(layers, maps, strict=True):
        retrieved, state = layer(x, state, out) if layer.needs_shortcut else layer(x, state)
        out = x + retrieved
        outputs = [out] if last_only else [*outputs, out]
    return outputs, state


def _saved_bytes(layers: nn.ModuleList, maps: list[Tensor], memory_limit: float,
                 deadline: float) -> tuple[int, list[Tensor]]:
    """Bytes that a forward keeps for backward, and its outputs, from which the backward can continue.

    Raises:
        _OverLimit: it keeps more than ``memory_limit`` GiB, or is still running at ``deadline``.
    """
    parameters = {parameter.untyped_storage().data_ptr() for parameter in layers.parameters()}
    storages: dict[int, int] = {}
    total = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal total
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = storage.nbytes()
            total += storage.nbytes()
            if total > memory_limit * 2**30:
                raise _OverLimit(f'keeps more than {memory_limit:g} GiB for backward')
            if time.perf_counter() > deadline:
                raise _OverLimit('takes longer than the limit')
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs, _ = _run(layers, maps)
    return total, outputs


def _bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def _median_time(run: Callable[[], object], repeats: int, device: torch.device | str) -> float:
    clock = time.process_time if _alone(device) else time.perf_counter
    seconds = []
    for _ in range(repeats):
        _wait(device)
        started = clock()
        run()
        _wait(device)
        seconds.append(clock() - started)
    return statistics.median(seconds)


def _alone(device: torch.device | str) -> bool:
    """Whether a single CPU thread does all work; its CPU time is then the wall time of an idle machine."""
    return torch.device(device).type == 'cpu' and torch.get_num_threads() == 1


def _wait(device: torch.device | str) -> None:
    if torch.device(device).type == 'cuda':
        torch.cuda.synchronize(device)


def exponent(points: Sequence[Point], quantity: str) -> float | None:
    """The exponent of D with which a quantity grows: least squares of the logarithms over the larger half of the depths
    that are done. None for fewer than two, or where it is 0."""
    done = sorted((point for point in points if point.done), key=lambda point: point.depth)
    done = done[-max(2, math.ceil(len(done) / 2)):]
    values = [getattr(point, quantity) for point in done]
    if len(done) < 2 or min(values) <= 0:
        return None
    return statistics.linear_regression([math.log(point.depth) for point in done], [math.log(v) for v in values]).slope


def by_method(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each method."""
    return {name: [point for point in points if point.method == name]
            for name in dict.fromkeys(point.method for point in points)}


def without_rule(points: Sequence[Point]) -> list[str]:
    """The operators without a FLOP rule that may hold multiply-accumulates."""
    return sorted({operator for point in points for operator in point.without_rule})


def unknown_macs(points: Sequence[Point]) -> list[str]:
    """One line per method whose MACs are not known, with what to do."""
    return [f'the MACs of {name} are not known: torch has no FLOP rule for {", ".join(operators)}; {RULE_HINT}'
            for name, own in by_method(points).items() if (operators := without_rule(own))]


def conclusions(points: Sequence[Point]) -> list[str]:
    """One line per method: the exponents, the depths they cover, and where it was stopped."""
    lines = []
    for name, own in by_method(points).items():
        done = [point.depth for point in own if point.done]
        parts = []
        for quantity, what in QUANTITIES.items():
            power = exponent(own, quantity)
            if quantity == 'macs' and without_rule(own):
                parts.append(f'MACs not known (no rule for {", ".join(without_rule(own))})')
            elif power is not None:
                parts.append(f'{what} ∝ D^{power + 0.:.2f}')
            elif done and all(getattr(point, quantity) == 0 for point in own if point.done):
                parts.append(f'{what} none')
        half = done[-max(2, math.ceil(len(done) / 2)):]
        text = f'{name}: ' + (', '.join(parts) + f' (fitted over D = {half[0]} to {half[-1]})' if len(done) > 1
                              else 'too few depths for an exponent')
        names = dict.fromkeys(operator for point in own for operator in point.uncounted)
        text += f'; not in the MACs: {", ".join(names)}' if names else ''
        stop = next((point for point in own if not point.done), None)
        lines.append(text + (f'; depth {stop.depth} {stop.status}' if stop else ''))
    return lines


def write(folder: Path, points: Sequence[Point], settings: str) -> list[Path]:
    """``cost.csv`` with one row per point, ``exponents.csv``, ``cost.png``; ``settings`` is in the title."""
    table, powers, picture = folder / 'cost.csv', folder / 'exponents.csv', folder / 'cost.png'
    per_layer = ('inference_seconds', 'training_seconds')
    rows = [asdict(point) | _operators(point) | {f'{quantity}_per_layer': getattr(point, quantity) / point.depth
                             for quantity in per_layer if point.done} | dict(threads=torch.get_num_threads())
            for point in points]
    write_csv(table, rows, [*(field.name for field in fields(Point)),
                            *(f'{quantity}_per_layer' for quantity in per_layer), 'threads'])
    write_csv(powers, ({'method': name} | {quantity: exponent(own, quantity) for quantity in QUANTITIES
                                           if quantity != 'macs' or not without_rule(own)}
                       for name, own in by_method(points).items()), ['method', *QUANTITIES])
    _draw(picture, points, settings)
    return [table, powers, picture]


def _operators(point: Point) -> dict[str, str]:
    """The columns ``uncounted`` and ``without_rule`` as text, the first with its output elements."""
    return dict(uncounted='; '.join(f'{name} {elements}' for name, elements in point.uncounted.items()),
                without_rule='; '.join(point.without_rule))


def _draw(path: Path, points: Sequence[Point], settings: str) -> None:
    panels = {'macs': ('MACs of an inference', 1), 'saved_bytes': ('kept for backward [MiB]', 2**20),
              'state_bytes': ('live state in inference [KiB]', 2**10),
              'inference_seconds': ('inference [ms per layer]', 1e-3),
              'training_seconds': ('forward + backward [ms per layer]', 1e-3)}
    figure = new_figure(11, 6.4)
    axes = figure.subplots(2, 3).ravel()
    for axis, (quantity, (label, unit)) in zip(axes, panels.items(), strict=False):
        for number, (name, own) in enumerate(by_method(points).items()):
            per_layer = quantity.endswith('seconds')
            if quantity == 'macs' and without_rule(own):
                continue
            shown = [(point.depth, getattr(point, quantity) / unit / (point.depth if per_layer else 1))
                     for point in own if point.done and getattr(point, quantity) > 0]
            if shown:
                axis.plot(*zip(*shown, strict=True), marker='osD^v<>P'[number % 8], markersize=5, color=f'C{number}',
                          linestyle='--' if number % 2 else '-', label=name)
        axis.set(xscale='log', yscale='log', xlabel='layers D', ylabel=label)
        axis.set_xscale('log', base=2)
        axis.xaxis.set_major_formatter('{x:g}')
        axis.grid(alpha=0.3, which='both')
    axes[-1].set_axis_off()
    shown = {line.get_label(): line for axis in axes[:-1] for line in axis.lines}
    axes[-1].legend(shown.values(), shown.keys(), loc='center', fontsize=10, frameon=False)
    figure.suptitle(f'Layer attentions alone: {settings}', fontsize=11)
    write_figure(path, figure)
