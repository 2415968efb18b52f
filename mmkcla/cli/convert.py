"""Rename the weights of a paper's released network, or of a plain ResNet, so that they load here.

The network they must fit is built from --config, or told from the file's names and shapes. What matched, what was
dropped (entries that the released code builds and never uses) and what is missing is printed by number and name. A
partial match fails with exit code 2 and writes nothing. Optimizer states and the like are left behind.

  mmkcla convert resnet50_kcla.pth.tar kcla_r50.pth --source imagenet-kcla
  mmkcla convert resnet50.pth resnet50.safetensors --source torchvision
  mmkcla convert epoch_12.pth detector.pth --source detector-kcla --config faster-rcnn_r50-kcla_fpn_1x_coco
"""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runtime.config import load_config
from ..utils.text import note
from ..version import __version__

if TYPE_CHECKING:

    pass

SUMMARY = "convert other people's weights"
_SUFFIXES = ('.pth', '.safetensors')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla convert``."""
    parser.add_argument('file', help='weights: .pth, .pth.tar, .pt or .safetensors; no code in it is run')
    parser.add_argument('out', help='file to write, .pth or .safetensors')
    parser.add_argument('--source', metavar='SOURCE',
                        help='cifar-|imagenet- with kcla, mrla-light, mrla-base or dla-light; cifar-softmax; detector- '
                             'with kcla, mrla-light or dla-light; torchvision; mmpretrain; kcla-layer (default: what '
                             'the names in the file tell)')
    parser.add_argument('--config', help='config of the model that the weights are for, or its name')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='change entries of the config')
    parser.add_argument('--depth', type=int, metavar='N', help='depth to expect, without --config')
    parser.add_argument('--num-classes', type=int, metavar='K', help='classes to expect, without --config')
    parser.add_argument('--carry', choices=('stage', 'block', 'none'), default='stage',
                        help='of kcla-layer: from the previous stage, inside the stage, or not at all '
                             '(default: %(default)s)')
    parser.add_argument('--allow-partial', action='store_true', help='write what matches, even if it is not all')
    parser.add_argument('--force', action='store_true', help='replace OUT if it exists')


def run(args: argparse.Namespace) -> int:
    """Convert; see :func:`add_arguments`."""
    check_arguments(args)
    config = load_config(args.config, args.cfg_options) if args.config else None

    from ..runtime.conversion import expected_network, recognise_source, report
    from ..utils.files import sha256_of
    from ..weights.convert import convert_state_dict
    from ..weights.convert.fit import fit_of
    from ..weights.convert.write import write_weights
    from ..weights.reading import read_checkpoint, state_dict_of
    checkpoint = read_checkpoint(args.file)
    try:
        weights = state_dict_of(checkpoint)
        source = args.source or recognise_source(weights)
        conversion = convert_state_dict(weights, source, carry=args.carry)
        network, usage = expected_network(conversion, source, config, args.carry, args.depth, args.num_classes)
    except UserError as error:
        raise UserError(f'{args.file}: {error}') from error
    fit = fit_of(conversion.state_dict, network, source)
    print(report(args.file, source, usage, conversion, fit), flush=True)
    if not fit.matched or not fit.complete and not args.allow_partial:
        raise UserError(f'{args.file} fits {usage.title} only in part: {fit.problems()}; nothing was written'
                        + ('' if not fit.matched else ' (--allow-partial writes what matches)'))
    if not fit.complete:
        note(f'{args.out} is partial: {fit.problems()}')
    lost = set(fit.lost)
    write_weights(args.out, {name: tensor for name, tensor in conversion.state_dict.items() if name not in lost},
                  dict(source=source, source_sha256=sha256_of(args.file), mmkcla_version=__version__,
                       **{usage.part: usage.arguments}))
    print(f'written: {args.out}\n{usage.text(args.out)}')
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is read.

    Raises:
        UserError: naming the argument.
    """
    out = Path(args.out)
    if not Path(args.file).is_file():
        raise UserError(f'no such file: {args.file}' if not Path(args.file).is_dir() else f'{args.file} is a folder')
    if out.suffix not in _SUFFIXES:
        raise UserError(f'{out}: the suffix decides the format; name it {" or ".join(_SUFFIXES)}')
    if out.exists() and out.samefile(args.file):
        raise UserError(f'{out} is the file to convert; choose another output')
    if out.is_dir():
        raise UserError(f'{out} is a folder; name a file in it')
    if out.exists() and not args.force:
        raise UserError(f'{out} exists; --force replaces it')
    if args.config and (args.depth or args.num_classes):
        raise UserError('--depth and --num-classes are what --config says; leave them out')
    if args.cfg_options and not args.config:
        raise UserError('--cfg-options changes a config; name it with --config')
    if args.num_classes is not None and args.num_classes < 1:
        raise UserError(f'--num-classes: at least 1, got {args.num_classes}')
