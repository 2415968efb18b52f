"""Convert the released weights of a paper, or of a plain ResNet, to the parameter names of this package.

The target network is built from --config, or inferred from the names and shapes in the file. Matched, dropped (entries
that the released code creates but never uses), missing and unexpected entries are reported with counts and names. On a
partial match nothing is written and the exit code is 2. Only weights are converted; optimizer states are not.

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

SUMMARY = 'convert released weights'
_SUFFIXES = ('.pth', '.safetensors')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla convert``."""
    parser.add_argument('file', help='weights: .pth, .pth.tar, .pt or .safetensors; no code in the file is run')
    parser.add_argument('out', help='output file: .pth or .safetensors')
    parser.add_argument('--source', metavar='SOURCE',
                        help='origin of the weights: cifar- or imagenet- followed by kcla, mrla-light, mrla-base or '
                             'dla-light; cifar-softmax; detector- followed by kcla, mrla-light or dla-light; '
                             'torchvision; mmpretrain; kcla-layer (default: inferred from the names in the file)')
    parser.add_argument('--config', help='config of the target model: a path, or the name of a shipped config')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='override entries of the config')
    parser.add_argument('--depth', type=int, metavar='N', help='expected depth, without --config')
    parser.add_argument('--num-classes', type=int, metavar='K', help='expected number of classes, without --config')
    parser.add_argument('--carry', choices=('stage', 'block', 'none'), default='stage',
                        help='for kcla-layer: carry from the previous stage, within the stage, or none '
                             '(default: %(default)s)')
    parser.add_argument('--allow-partial', action='store_true',
                        help='write the matching entries even if others are missing')
    parser.add_argument('--force', action='store_true', help='overwrite OUT if it exists')


def run(args: argparse.Namespace) -> int:
    """Convert the file; see :func:`add_arguments`."""
    check_arguments(args)
    config = load_config(args.config, args.cfg_options) if args.config else None

    from ..runtime.conversion import expected_network, recognise_source, report
    from ..utils.files import sha256_of
    from ..weights.convert import convert_state_dict
    from ..weights.convert.fit import fit_of
    from ..weights.convert.write import write_weights
    from ..weights.finite import require_finite
    from ..weights.method_record import make_record
    from ..weights.reading import read_checkpoint, state_dict_of
    checkpoint = read_checkpoint(args.file)
    require_finite(checkpoint, args.file)
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
        raise UserError(f'{args.file} fits {usage.title} only partially: {fit.problems()}; nothing was written'
                        + ('' if not fit.matched else ' (--allow-partial writes the matching entries)'))
    if not fit.complete:
        note(f'{args.out} is partial: {fit.problems()}')
    lost = set(fit.lost)
    written = {name: tensor for name, tensor in conversion.state_dict.items() if name not in lost}
    write_weights(args.out, written,
                  dict(source=source, source_sha256=sha256_of(args.file), mmkcla_version=__version__,
                       mmkcla=make_record(network, written), **{usage.part: usage.arguments}))
    print(f'written: {args.out}\n{usage.text(args.out)}')
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Validate the arguments before any file is read.

    Raises:
        UserError: an invalid argument, with its name and value.
    """
    out = Path(args.out)
    if not Path(args.file).is_file():
        raise UserError(f'no such file: {args.file}' if not Path(args.file).is_dir() else f'{args.file} is a folder')
    if out.suffix not in _SUFFIXES:
        raise UserError(f'{out}: unknown suffix; use {" or ".join(_SUFFIXES)}')
    if out.exists() and out.samefile(args.file):
        raise UserError(f'{out} is the input file; choose another output file')
    if out.is_dir():
        raise UserError(f'{out} is a folder; give a file name')
    if out.exists() and not args.force:
        raise UserError(f'{out} exists; use --force to overwrite it')
    if args.config and (args.depth or args.num_classes):
        raise UserError('--depth and --num-classes cannot be used with --config, which defines both')
    if args.cfg_options and not args.config:
        raise UserError('--cfg-options needs --config')
    if args.num_classes is not None and args.num_classes < 1:
        raise UserError(f'--num-classes must be at least 1, got {args.num_classes}')
