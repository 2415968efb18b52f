"""Compare the outputs of a published network with those of its conversion, on random weights and images.

    python tools/dev/compare_published.py CHECKOUT --source imagenet-kcla --module models.resnet_kcla --name resnet50

CHECKOUT is a checkout of the published code; nothing is downloaded. Its code is imported and run, so read it first.
``name`` is the class or function of the network in ``module``, called with ``--arguments``. The script fills the
network's state dict with seeded random values, converts it with ``mmkcla.convert``, runs both networks on the CPU, in
evaluation mode, on seeded random images, and prints the largest difference relative to the largest output. Exit code 1
if it exceeds --tolerance, 2 for an error.
"""
from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mmkcla.convert import CLASSIFIER_SOURCES, convert_state_dict
from mmkcla.errors import UserError
from mmkcla.runtime.conversion import expected_network
from mmkcla.utils.text import listed, one_line
from mmkcla.weights.convert.fit import fit_of


def published_network(checkout: Path, module: str, name: str, arguments: Mapping[str, Any],
                      package_init: bool = True) -> nn.Module:
    """Import ``module`` from a checkout and build its network ``name``.

    Args:
        checkout: folder of the published code.
        module, name: of the class or function.
        arguments: of the call.
        package_init: run the ``__init__.py`` of the packages of ``module``; False for packages that cannot be imported.

    Raises:
        UserError: the module cannot be imported, or the network cannot be built.
    """
    if not checkout.is_dir():
        raise UserError(f'no such folder: {checkout}')
    sys.path.insert(0, str(checkout.resolve()))
    if not package_init:
        parts = module.split('.')
        for package in ('.'.join(parts[:end]) for end in range(1, len(parts))):
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = [str(checkout.joinpath(*package.split('.')))]
    try:
        network = getattr(importlib.import_module(module), name)(**arguments)
    except Exception as error:  # code of others
        raise UserError(f'{module}.{name} in {checkout} cannot be built: {type(error).__name__}: '
                        f'{one_line(error, 200)}; check --module, --name and --arguments, or try '
                        '--skip-package-init') from error
    finally:
        sys.path.remove(str(checkout.resolve()))
    if not isinstance(network, nn.Module):
        raise UserError(f'{module}.{name} gives a {type(network).__name__}, not a torch.nn.Module')
    return network.eval()


def random_state(network: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Random values for every entry of a network, float64, of sizes that keep its maps finite.

    Variances, norm weights and the 1/P of KCLA (``norm_d``) are positive. Weights of two and more axes are
    scaled by their number of inputs; all others are small.
    """
    state = {}
    for name, tensor in network.state_dict().items():
        if not tensor.is_floating_point():
            state[name] = tensor.clone()
            continue
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        positive = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5
        if name.endswith(('running_var', 'norm_d')):
            state[name] = positive
        elif tensor.ndim == 1 and name.endswith('weight'):
            state[name] = positive / 2  # of norms: below 1, so that the maps do not grow from block to block
        elif tensor.ndim > 1 and (inputs := tensor[0].numel()) > 1:
            state[name] = values * inputs ** -0.5
        else:
            state[name] = values * 0.3
    return state


def converted_network(state: Mapping[str, Tensor], source: str, kind: torch.dtype = torch.float32) -> nn.Module:
    """The network of this package with the converted weights, of type ``kind``.

    Raises:
        UserError: the weights are not those of ``source``, or do not fit the network.
    """
    conversion = convert_state_dict(state, source)
    weights = conversion.state_dict
    network, _ = expected_network(conversion, source, None)
    fit = fit_of(weights, network, source)
    if not fit.complete:
        rest = [*fit.missing, *fit.unexpected, *fit.mismatched]
        raise UserError(f'the converted weights of {source} do not fit the network: {listed(rest)}')
    network.to(kind).load_state_dict({name: weights[name] for name in fit.matched}, strict=False)
    return network.eval()


@torch.no_grad()
def differences(published: nn.Module, ours: nn.Module, images: Tensor) -> Tensor:
    """Largest difference of the outputs of each sample, relative to the largest output of the batch, ``(B, )``."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(images.dtype)  # of the states that forwards create
    try:
        with mock.patch.object(Tensor, 'cuda', lambda tensor, *args, **kwargs: tensor):
            theirs = published(images)
    finally:
        torch.set_default_dtype(default)
    own = ours(images, mode='tensor')
    if not isinstance(theirs, Tensor) or theirs.shape != own.shape:
        shape = tuple(theirs.shape) if isinstance(theirs, Tensor) else type(theirs).__name__
        raise UserError(f'the published network returns {shape}, ours {tuple(own.shape)}')
    if not (theirs.isfinite().all() and own.isfinite().all()) or not theirs.any():
        raise UserError('the outputs are not finite, or all 0; try another --seed')
    return (own - theirs).abs().flatten(1).amax(1) / theirs.abs().max()


def compare(args: argparse.Namespace) -> float:
    """Compare the networks on all batches, print the result, and return the largest relative difference."""
    generator = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    published = published_network(args.checkout, args.module, args.name, dict(args.arguments),
                                  not args.skip_package_init)
    state = random_state(published, generator)
    kind = torch.float64 if args.double else torch.float32
    published.to(kind).load_state_dict(state)
    ours = converted_network(state, args.source, kind)
    found = torch.stack([differences(published, ours, torch.randn(
        args.batch, 3, args.size, args.size, generator=generator, dtype=torch.float64).to(kind))
        for _ in range(args.batches)]).amax(0)
    print(f'{args.source}: {args.module}.{args.name}: largest relative difference {float(found.max()):.1e} '
          f'({args.batches} × {args.batch} images of {args.size}×{args.size}, {str(kind).removeprefix("torch.")}, '
          f'seed {args.seed})')
    if args.batch > 1:
        print('by position in the batch: ' + ' '.join(f'{value:.1e}' for value in found.tolist()))
    return float(found.max())


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition('=')
    if not equals:
        raise argparse.ArgumentTypeError(f'{text!r} is not KEY=VALUE')
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkout', type=Path, help='folder of the published code')
    parser.add_argument('--source', required=True, choices=[*CLASSIFIER_SOURCES, 'torchvision'])
    parser.add_argument('--module', required=True, help='module of the network, from the checkout: models.resnet')
    parser.add_argument('--name', required=True, help='class or function in the module')
    parser.add_argument('--arguments', nargs='+', type=_argument, default=[], metavar='KEY=VALUE')
    parser.add_argument('--skip-package-init', action='store_true',
                        help='do not run the __init__.py of the module\'s packages')
    parser.add_argument('--size', type=int, default=224, help='of the images (default: %(default)s)')
    parser.add_argument('--batch', type=int, default=1, help='images per batch (default: %(default)s)')
    parser.add_argument('--batches', type=int, default=4, help='number of batches (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='of weights and images (default: %(default)s)')
    parser.add_argument('--double', action='store_true', help='compute in float64')
    parser.add_argument('--tolerance', type=float, default=1e-5, help='largest difference (default: %(default)g)')
    args = parser.parse_args(arguments)
    for name in ('size', 'batch', 'batches'):
        if getattr(args, name) < 1:
            parser.error(f'--{name} must be at least 1, got {getattr(args, name)}')
    try:
        return int(not compare(args) <= args.tolerance)
    except UserError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
