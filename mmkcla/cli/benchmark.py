"""Time and memory beside each other, in one run on this machine.

features    backbone and neck of several configs: a training step each, in turns; ratios to the first
positions   the attentions over positions (Efficient Attention, dot product, mmcv's non-local) against n = H·W, each
            until it runs out of memory

Each writes CSV (features: and Markdown; positions: and a picture) into its folder. Figures of different runs or
machines are not comparable; ratios within one are.
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

SUMMARY = 'time and memory of configs, and of attentions over positions'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla benchmark``."""
    kinds = parser.add_subparsers(dest='benchmark', required=True, metavar='benchmark')
    features = _add(kinds, 'features', 'a training step of backbone and neck, of several configs in turns')
    features.add_argument('configs', nargs='+', metavar='config',
                          help='configs: paths, or the names of some that ship with the package; the first is 1.00')
    features.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                          help='change entries of all of them')
    features.add_argument('--shape', type=int, nargs='+', default=[128], metavar='N',
                          help='images of N×N, or H W (default: 128)')
    features.add_argument('--batch', type=int, default=2, help='images (default: %(default)s)')
    features.add_argument('--rounds', type=int, default=15, help='timed steps of each (default: %(default)s)')
    features.add_argument('--device', default='cpu', help='cpu, cuda, cuda:1 … (default: %(default)s)')

    positions = _add(kinds, 'positions', 'attentions over positions against their number')
    positions.add_argument('--sides', type=int, nargs='+', default=[16, 32, 64, 96, 128, 192, 256], metavar='N',
                           help='sides of the maps, rising (default: 16 32 64 96 128 192 256)')
    positions.add_argument('--channels', type=int, default=64, help='of the map (default: %(default)s)')
    positions.add_argument('--key-channels', type=int, default=32, help='of keys and values (default: %(default)s)')
    positions.add_argument('--repeats', type=int, default=3,
                           help='timed runs, of which the median (default: %(default)s)')
    positions.add_argument('--memory-limit', type=float, default=8., metavar='GIB',
                           help='what a measurement may take (default: %(default)g)')


def _add(kinds: 'argparse._SubParsersAction', name: str, what: str) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=what, description=what)
    parser.add_argument('--out-dir', help=f'folder of the results (default: work_dirs/benchmark/{name})')
    parser.add_argument('--traceback', action='store_true', default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def run(args: argparse.Namespace) -> int:
    """Measure; see :func:`add_arguments`."""
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
            raise UserError(f'--{name.replace("_", "-")}: above 0 is wanted, got {value}')
    if len(getattr(args, 'shape', [1])) > 2:
        raise UserError(f'--shape takes N, or H W, got {" ".join(map(str, args.shape))}')


def run_features(args: argparse.Namespace) -> None:
    """Costs of the features of all configs, in one table."""
    import torch

    from ..analysis.features import feature_costs, model_with_features, write_features
    models = {}
    for name in args.configs:
        config = load_config(name, args.cfg_options)
        stem = Path(config.filename).stem
        if stem in models:
            raise UserError(f'two configs are called {stem}')
        models[stem] = model_with_features(config, name)
    height, width = (args.shape * 2)[:2]
    try:
        costs = feature_costs(models, (args.batch, 3, height, width), args.rounds, args.device)
    except ValueError as error:  # torch's, of a batch norm with one value a channel
        raise UserError(f'{one_line(error)}; choose a larger --shape or --batch') from error
    text = write_features(args.out_dir, costs, f'{args.batch} images of {height}×{width}, {args.device}, '
                                               f'{torch.get_num_threads()} threads, torch {torch.__version__}')
    print(f'{text}\nresults: {args.out_dir / "features.csv"}, {args.out_dir / "features.md"}')


def run_positions(args: argparse.Namespace) -> None:
    """Measurements of all attentions, their table, picture and conclusions."""
    from importlib.util import find_spec

    from ..analysis import positions
    modules = list(positions.MODULES)
    if not find_spec('mmcv'):
        note('mmcv is not installed; its NonLocal2d is left out')
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
