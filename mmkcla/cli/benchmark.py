"""Compare time and memory within one run on this machine.

model       training step and inference of several configs side by side, eager, compiled, deployed, with mixed precision
            or channels last: time, memory kept for backward, peak memory, memory traffic, operators, parameters, MACs
positions   attention over positions (Efficient Attention, dot product, mmcv's non-local) versus n = H·W, each until it
            runs out of memory

model compares the features of each form with the eager form before it times anything; the forms then run in turn, and
ratios are to the first config in the same form. Memory traffic is the bytes that operators read and write, calls their
number; both are exact and the same on every machine, and are not known for compiled code. Table (Markdown and CSV),
figure and a record of the machine are written to --out-dir. Seconds of different runs or machines are not comparable;
ratios within one run are.
"""
import argparse
import math
import sys
from pathlib import Path

from ..errors import UserError
from ..runtime.config import check_writable, load_config
from ..utils.text import note, one_line

FORMS = ('eager', 'compiled', 'deployed', 'amp', 'channels-last')
SUMMARY = 'measure time and memory of configs, and of attention over positions'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla benchmark``: one sub-command per benchmark."""
    kinds = parser.add_subparsers(dest='benchmark', required=True, metavar='benchmark')
    model = _add(kinds, 'model', 'training step and inference of several configs, side by side')
    model.add_argument('configs', nargs='+', metavar='config',
                       help='config files: paths, or names of configs shipped with the package; ratios are relative to '
                            'the first')
    model.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                       help='override entries of all configs')
    model.add_argument('--forms', nargs='+', choices=FORMS, default=['eager'], metavar='FORM',
                       help=f'forms to measure: {", ".join(FORMS)} (default: eager)')
    model.add_argument('--part', choices=('model', 'features'), default='model',
                       help='the complete model with losses and predictions, or backbone and neck '
                            '(default: %(default)s)')
    model.add_argument('--shape', type=int, nargs='+', default=[224], metavar='N',
                       help='image size in pixels: N for N×N, or H W (default: 224)')
    model.add_argument('--batch', type=int, default=2, help='batch size (default: %(default)s)')
    model.add_argument('--rounds', type=int, default=10,
                       help='timed training steps and inferences per config and form (default: %(default)s)')
    model.add_argument('--device', default='cpu', help='cpu, cuda, cuda:1 … (default: %(default)s)')
    model.add_argument('--threads', type=int, help='CPU threads of PyTorch (default: as PyTorch chooses)')
    model.add_argument('--data', action='store_true',
                       help='also measure the loading of the training data, which must be present')

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
    {'model': run_model, 'positions': run_positions}[args.benchmark](args)
    return 0


def _check_positive(args: argparse.Namespace) -> None:
    for name in ('shape', 'batch', 'rounds', 'threads', 'sides', 'channels', 'key_channels', 'repeats',
                 'memory_limit'):
        value = getattr(args, name, None)
        if value is not None and not all(0 < number < math.inf for number in (
                value if isinstance(value, list) else [value])):
            raise UserError(f'--{name.replace("_", "-")} must be positive, got {value}')
    if len(getattr(args, 'shape', [1])) > 2:
        raise UserError(f'--shape takes one or two numbers (N, or H W), got {" ".join(map(str, args.shape))}')


def run_model(args: argparse.Namespace) -> None:
    """Measure all configs and forms, in one table."""
    import torch

    from ..runtime.checks import check_keys
    from ..runtime.device import pick_device
    from ..runtime.hosts import prepare_hosts
    device = str(pick_device(args.device))
    if args.threads:
        torch.set_num_threads(args.threads)
    configs = {}
    for name in args.configs:
        config = load_config(name, args.cfg_options)
        stem = Path(config.filename).stem
        if stem in configs:
            raise UserError(f'two configs are named {stem}; rename one')
        prepare_hosts(config)
        check_keys(config)
        configs[stem] = config
    from ..analysis import loading, model_cost, model_table
    height, width = (args.shape * 2)[:2]
    shape = (args.batch, 3, height, width)
    try:
        costs = model_cost.measure(configs, args.forms, shape, args.rounds, args.part, device, _progress)
    except UserError:
        raise
    except ValueError as error:  # torch: batch norm with a single value per channel
        raise UserError(f'{one_line(error)}; choose a larger --shape or --batch') from error
    if args.data:
        seconds = {name: loading.loading_seconds(config, args.rounds) for name, config in configs.items()}
        for cost in costs:
            cost.loading = seconds[cost.config]
    facts = model_table.conditions(shape, args.rounds, args.part, device)
    files = model_table.write(args.out_dir, costs, facts)
    print(model_table.markdown(costs, facts))
    for cost in costs:
        if cost.form != 'eager':
            print(f'{cost.name}: features differ from eager by {cost.difference:.1e} of the largest value')
    print('results: ' + ', '.join(map(str, files)))


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f'\r\x1b[K{line}', end='', file=sys.stderr, flush=True)


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
