"""Compare time and memory within one run on this machine.

features    training steps of backbone and neck of several configs, interleaved; ratios to the first config
positions   attention over positions (Efficient Attention, dot product, mmcv's non-local) versus n = H·W, each until it
            runs out of memory

features writes CSV and Markdown, positions writes CSV and a figure. Absolute numbers of different runs or machines are
not comparable; ratios within one run are.
"""
import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runtime.config import check_writable, load_config
from ..utils.text import note, one_line

if TYPE_CHECKING:
    pass

SUMMARY = 'measure time and memory of configs, and of attention over positions'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla benchmark``: one sub-command per benchmark."""
    kinds = parser.add_subparsers(dest='benchmark', required=True, metavar='benchmark')
    features = _add(kinds, 'features', 'training steps of backbone and neck of several configs, interleaved')
    features.add_argument('configs', nargs='+', metavar='config',
                          help='config files: paths, or names of configs shipped with the package; ratios are relative '
                               'to the first')
    features.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                          help='override entries of all configs')
    features.add_argument('--shape', type=int, nargs='+', default=[128], metavar='N',
                          help='image size in pixels: N for N×N, or H W (default: 128)')
    features.add_argument('--batch', type=int, default=2, help='batch size (default: %(default)s)')
    features.add_argument('--rounds', type=int, default=15, help='timed steps per config (default: %(default)s)')
    features.add_argument('--device', default='cpu', help='cpu, cuda, cuda:1 … (default: %(default)s)')

    positions = _add(kinds, 'positions', 'attention over positions versus their number')
    positions.add_argument('--sides', type=int, nargs='+', default=[16, 32, 64, 96, 128, 192, 256], metavar='N',
                           help='heights and widths of the feature maps (default: 16 32 64 96 128 192 256)')
    positions.add_argument('--channels', type=int, default=64,
                           help='channels of the feature maps (default: %(default)s)')
    positions.add_argument('--key-channels', type=int, default=32,
                           help='channels of keys and values (default: %(default)s)')
    positions.add_argument('--repeats', type=int, default=3,
                           help='timed runs; the median is reported (default: %(default)s)')
    positions.add_argument('--memory-limit', type=float, default=8., metavar='GIB',
                           help='memory limit of a measurement, in GiB (default: %(default)g)')


def _add(kinds: 'argparse._SubParsersAction', name: str, what: str) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=what, description=what)
    parser.add_argument('--out-dir', help=f'output folder (default: work_dirs/benchmark/{name})')
    parser.add_argument('--traceback', action='store_true', default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the chosen benchmark; see :func:`add_arguments`."""
    args.out_dir = Path(args.out_dir or Path('work_dirs', 'benchmark', args.benchmark))
    _check_positive(args)
    check_writable(args.out_dir, '--out-dir')
    {'features': run_features, 'positions': run_positions}[args.benchmark](args)
    return 0


def _check_positive(args: argparse.Namespace) -> None:
    for name in ('shape', 'batch', 'rounds', 'sides', 'channels', 'key_channels', 'repeats', 'memory_limit'):
        value = getattr(args, name, None)
        if value is not None and not all(0 < number < math.inf for number in (
                value if isinstance(value, list) else [value])):
            raise UserError(f'--{name.replace("_", "-")} must be positive, got {value}')
    if len(getattr(args, 'shape', [1])) > 2:
        raise UserError(f'--shape takes one or two numbers (N, or H W), got {" ".join(map(str, args.shape))}')


def run_features(args: argparse.Namespace) -> None:
    """Measure the features of all configs, in one table."""
    import torch

    from ..analysis.features import feature_costs, model_with_features, write_features
    models = {}
    for name in args.configs:
        config = load_config(name, args.cfg_options)
        stem = Path(config.filename).stem
        if stem in models:
            raise UserError(f'two configs are named {stem}; rename one')
        models[stem] = model_with_features(config, name)
    height, width = (args.shape * 2)[:2]
    try:
        costs = feature_costs(models, (args.batch, 3, height, width), args.rounds, args.device)
    except ValueError as error:  # torch: batch norm with a single value per channel
        raise UserError(f'{one_line(error)}; choose a larger --shape or --batch') from error
    text = write_features(args.out_dir, costs, f'{args.batch} images of {height}×{width}, {args.device}, '
                                               f'{torch.get_num_threads()} threads, torch {torch.__version__}')
    print(f'{text}\nresults: {args.out_dir / "features.csv"}, {args.out_dir / "features.md"}')


def run_positions(args: argparse.Namespace) -> None:
    """Measure all attention modules; write the table and the figure, print conclusions."""
    from importlib.util import find_spec

    from ..analysis import positions
    modules = list(positions.MODULES)
    if not find_spec('mmcv'):
        note('mmcv is not installed; skipping its NonLocal2d')
        modules.remove(positions.NON_LOCAL)
    points = []
    for point in positions.measure(sorted(args.sides), args.channels, args.key_channels, args.memory_limit,
                                   args.repeats, modules):
        points.append(point)
        figures = '' if point.seconds is None else f' {point.seconds:.4f} s, {point.megabytes:.1f} MiB'
        print(f'{point.module}, {point.side}²: {point.status}{figures}', flush=True)
        positions.write_points(args.out_dir / 'positions.csv', points)
    positions.draw_points(args.out_dir / 'positions.png', points)
    print('\n'.join(['', *positions.conclusions(points)]))
    print(f'results: {args.out_dir / "positions.csv"}, {args.out_dir / "positions.png"}')
