"""Analyse layer attention.

keys      similarity of the keys of the layers of a stage
decay     contribution of each earlier layer to the output of each layer
weights   heat map of the layer weights, temperatures and Φ per head, gates per image
cost      parameters, MACs, memory and time of all methods versus depth
flops     parameters and MACs of the models of configs; no data needed

Each analysis writes CSV files and figures to --out-dir (flops also writes Markdown) and prints a summary. keys, decay
and weights take images and any config with layer attention in the backbone. Without --checkpoint the weights are
random, and all results are marked accordingly. The columns are explained in docs/analysis.md.
"""
import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runtime.config import check_writable, load_config
from ..runtime.device import pick_device
from ..runtime.hosts import prepare_hosts
from ..runtime.run_folder import checkpoint_of_run, folder_of_run
from ..runtime.testing import check_checkpoint
from ..utils.text import note

if TYPE_CHECKING:
    from ..analysis.subject import Subject

SUMMARY = 'analyse key similarity, decay, layer weights, cost versus depth and FLOPs'
RANDOM = '-'  # value of --checkpoint for random weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla analyse``: one sub-command per analysis."""
    kinds = parser.add_subparsers(dest='analysis', required=True, metavar='analysis')
    for name, what in (('keys', 'similarity of the keys of the layers of a stage'),
                       ('decay', 'contribution of each earlier layer to the output of each layer'),
                       ('weights', 'layer weights, temperatures, Φ, gates')):
        kind = _add(kinds, name, what)
        _add_configs(kind)
        kind.add_argument('--images', nargs='+', required=True, help='images or folders of images')
        kind.add_argument('--checkpoint', nargs='+', metavar='FILE',
                          help=f'one checkpoint per config; {RANDOM} for random weights (default: random, or the '
                               'checkpoint of a work dir that is given as a config)')
        kind.add_argument('--seed', type=int, default=0, help='seed of the random weights (default: %(default)s)')
        kind.add_argument('--size', type=int, nargs='+', metavar='N',
                          help='resize images to N×N or H×W pixels (default: the test pipeline of the config)')
        kind.add_argument('--max-images', type=int, default=16, help='use the first N images (default: %(default)s)')
        kind.add_argument('--device', help='cpu, cuda, cuda:1 … (default: a GPU if there is one)')

    cost = _add(kinds, 'cost', 'parameters, MACs, memory and time of all methods versus depth')
    cost.add_argument('--depths', type=int, nargs='+', help='numbers of layers (default: 8 16 32 64 128 256 512)')
    cost.add_argument('--methods', nargs='+', metavar='NAME',
                      help='layer attentions to measure (default: all of this package that attend to earlier layers)')
    cost.add_argument('--config', metavar='CONFIG',
                      help='config whose custom_imports register additional methods for --methods')
    cost.add_argument('--channels', type=int, default=64, help='channels of the feature maps (default: %(default)s)')
    cost.add_argument('--size', type=int, default=8, help='height and width of the feature maps (default: %(default)s)')
    cost.add_argument('--batch', type=int, default=1, help='batch size (default: %(default)s)')
    cost.add_argument('--head-channels', type=int,
                      help='channels per head, for methods with heads (default: the default of each method)')
    cost.add_argument('--repeats', type=int, default=3,
                      help='timed runs; the median is reported (default: %(default)s)')
    cost.add_argument('--limit', type=float, default=60.,
                      help='stop a method when forward and backward take longer, in seconds (default: %(default)g)')
    cost.add_argument('--memory-limit', type=float, default=4.,
                      help='stop a method when it keeps more memory for backward, in GiB (default: %(default)g)')
    cost.add_argument('--device', help='cpu, cuda, cuda:1 … (default: cpu)')

    flops = _add(kinds, 'flops', 'parameters and MACs of the models of configs; no data needed')
    _add_configs(flops)
    flops.add_argument('--shape', type=int, nargs='+', default=[224], metavar='N',
                       help='input size in pixels: N for N×N, or H W (default: 224)')


def _add(kinds: 'argparse._SubParsersAction', name: str, what: str) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=what, description=what)
    parser.add_argument('--out-dir', help=f'output folder (default: work_dirs/analysis/{name})')
    parser.add_argument('--traceback', action='store_true', default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('configs', nargs='+', metavar='config',
                        help='config files: paths, or names of configs shipped with the package')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='override entries of all configs')


def run(args: argparse.Namespace) -> int:
    """Run the chosen analysis; see :func:`add_arguments`."""
    args.out_dir = Path(args.out_dir or Path('work_dirs', 'analysis', args.analysis))
    check_writable(args.out_dir, '--out-dir')
    lines, files = {'keys': run_keys, 'decay': run_decay, 'weights': run_weights, 'cost': run_cost,
                    'flops': run_flops}[args.analysis](args)
    for line in lines:
        print(line)
    print('results: ' + ', '.join(map(str, files)))
    return 0


def run_keys(args: argparse.Namespace) -> tuple[list[str], list[Path]]:
    """Compute the key similarity of all models, in one table."""
    images, subjects = prepare(args)
    from ..analysis import key_similarity
    results = [result for subject in subjects for result in key_similarity.key_similarity(subject, images)]
    return key_similarity.conclusions(results), key_similarity.write(args.out_dir, results)


def run_decay(args: argparse.Namespace) -> tuple[list[str], list[Path]]:
    """Compute the contribution of earlier layers in all models, in one table and figure."""
    images, subjects = prepare(args)
    from ..analysis import decay
    results = [result for subject in subjects for result in decay.decay(subject, images)]
    return decay.conclusions(results), decay.write(args.out_dir, results)


def run_weights(args: argparse.Namespace) -> tuple[list[str], list[Path]]:
    """Compute the layer weights of all models, in separate files per model."""
    images, subjects = prepare(args)
    from ..analysis import layer_weights
    lines: list[str] = []
    files: list[Path] = []
    for subject in subjects:
        results = layer_weights.layer_weights(subject, images)
        files += layer_weights.write(args.out_dir, subject, results, images)
        lines += layer_weights.conclusions(subject, results)
    return lines, files


def prepare(args: argparse.Namespace) -> tuple[list[Path], list['Subject']]:
    """Find the images and build the models named by the arguments.

    Raises:
        UserError: invalid arguments, no images, a config without layer attention, or a checkpoint that does not fit.
    """
    if args.max_images < 1:
        raise UserError(f'--max-images must be at least 1, got {args.max_images}')
    size = None if args.size is None else pair(args.size, '--size')
    checkpoints = args.checkpoint or [weights_of(config, args.cfg_options) for config in args.configs]
    if len(checkpoints) != len(args.configs):
        raise UserError(f'--checkpoint has {len(checkpoints)} values for {len(args.configs)} configs; give one per '
                        f'config ({RANDOM} for random weights)')
    for checkpoint in checkpoints:
        if checkpoint != RANDOM:
            check_checkpoint(checkpoint)
    from ..runtime.inputs import find_images
    images = find_images(args.images)
    if len(images) > args.max_images:
        note(f'using the first {args.max_images} of {len(images)} images (--max-images)')
    from ..analysis.subject import build_subjects
    subjects = build_subjects(args.configs, args.cfg_options, checkpoints, args.seed, size, pick_device(args.device))
    return images[:args.max_images], subjects


def weights_of(config: str, options: list[str]) -> str:
    """Return the checkpoint of ``config`` if it is a work dir, else :data:`RANDOM`."""
    folder = folder_of_run(config)
    return checkpoint_of_run(folder, load_config(config, options)) if folder else RANDOM


def run_cost(args: argparse.Namespace) -> tuple[list[str], list[Path]]:
    """Measure cost versus depth, with a progress bar."""
    for name in ('channels', 'size', 'batch', 'repeats'):
        if getattr(args, name) < 1:
            raise UserError(f'--{name} must be at least 1, got {getattr(args, name)}')
    for name in ('limit', 'memory_limit'):
        if not 0 < getattr(args, name) < math.inf:
            raise UserError(f'--{name.replace("_", "-")} must be positive and finite, got {getattr(args, name):g}')

    import torch
    from tqdm import tqdm

    from ..analysis import cost
    if args.config:
        load_config(args.config, [])
    device = pick_device(args.device or 'cpu')
    methods, depths = args.methods or cost.default_methods(), args.depths or cost.DEPTHS
    options = {} if args.head_channels is None else dict(head_channels=args.head_channels)
    if options and (without := cost.methods_without('head_channels', methods)):
        note(f'--head-channels is ignored for {", ".join(without)}, which do not have this option')
    points = list(tqdm(
        cost.measure(depths, methods, args.channels, args.size, args.batch, args.repeats, args.limit, args.memory_limit,
                     options, device),
        total=len(methods) * len(set(depths)), unit='stage', disable=None))
    for line in cost.unknown_macs(points):
        note(line)
    threads = f'{torch.get_num_threads()} threads' if torch.get_num_threads() > 1 else '1 thread'
    heads = '' if args.head_channels is None else f'd={args.head_channels}, '
    settings = (f'{args.channels} channels, {heads}maps {args.size}×{args.size}, batch {args.batch}, '
                f'{device.type}' + (f', {threads}' if device.type == 'cpu' else ''))
    return [f'settings: {settings}', *cost.conclusions(points)], cost.write(args.out_dir, points, settings)


def run_flops(args: argparse.Namespace) -> tuple[list[str], list[Path]]:
    """Count parameters and MACs of all configs, in one table."""
    shape = pair(args.shape, '--shape')
    results = []
    for name in args.configs:
        config = load_config(name, args.cfg_options)
        prepare_hosts(config)
        from ..analysis import flops
        results.append(flops.complexity(config, shape))
        if operators := results[-1].without_rule:
            note(f'the MACs of {results[-1].config} are a lower bound: torch has no FLOP rule for '
                 f'{", ".join(operators)}; {flops.RULE_HINT}')
    return flops.markdown(results) + ['', *flops.conclusions(results)], flops.write(args.out_dir, results)


def pair(numbers: list[int], option: str) -> tuple[int, int]:
    """Convert ``[N]`` or ``[H, W]`` to (H, W)."""
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise UserError(f'{option} takes one or two positive numbers, got {" ".join(map(str, numbers))}')
    return numbers[0], numbers[-1]
