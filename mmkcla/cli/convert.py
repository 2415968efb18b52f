"""Rename the weights of a paper's released network, or of a plain ResNet, so that they load here.

The network they must fit is built from --config, or told from the file's names and shapes. What matched, what was
dropped (entries that the released code builds and never uses) and what is missing is printed by number and name. A
partial match fails with exit code 2 and writes nothing. Optimizer states and the like are left behind.

  mmkcla convert resnet50_kcla.pth.tar kcla_r50.pth --source imagenet-kcla
  mmkcla convert resnet50.pth resnet50.safetensors --source torchvision
  mmkcla convert epoch_12.pth detector.pth --source detector-kcla --config faster-rcnn_r50-kcla_fpn_1x_coco
"""
import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..runtime.config import load_config, note, prepare_hosts
from ..runtime.hosts import import_hosts
from ..version import __version__

if TYPE_CHECKING:
    from mmengine.config import Config
    from torch import nn

    from ..weights.convert import Conversion
    from ..weights.convert.fit import Fit

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

    from ..utils.files import sha256_of
    from ..weights.convert import convert_state_dict
    from ..weights.convert.fit import fit_of
    from ..weights.convert.write import write_weights
    from ..weights.reading import read_checkpoint, state_dict_of
    checkpoint = read_checkpoint(args.file)
    try:
        weights = state_dict_of(checkpoint)
        source = args.source or tell_source(weights)
        conversion = convert_state_dict(weights, source, carry=args.carry)
        network, usage = expected_network(args, conversion, source, config)
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


def tell_source(names: Mapping[str, Any]) -> str:
    """The one source whose names these are.

    Raises:
        UserError: there is none, or several.
    """
    from ..weights.convert import recognise
    from ..weights.convert.sources import whose
    fitting = recognise(names)
    if len(fitting) == 1:
        return fitting[0]
    raise UserError(f'its names fit several sources; choose one: --source {" or --source ".join(fitting)}' if fitting
                    else whose(names))


@dataclass(frozen=True)
class Usage:
    """What the weights are of, and how to use them.

    Attributes:
        part: ``'backbone'`` or ``'layer'``.
        arguments: its own.
        title: in words.
        whole: whether the whole model of a config was compared.
    """

    part: str
    arguments: dict[str, Any]
    title: str
    whole: bool = False

    def text(self, path: str) -> str:
        """The lines for a config, or for Python."""
        if self.part == 'layer':
            return ('use it with:\n'
                    f'layer = mmkcla.layers.{_call("KCLA", self.arguments)}\n'
                    f'layer.load_state_dict(mmkcla.checkpoint.fetch_state_dict({path!r}))')
        init = _call('dict', dict(type='Pretrained', checkpoint=path, prefix='backbone.'))
        lines = f'use it with:\nbackbone={_call("dict", self.arguments)[:-1]},\n    init_cfg={init})'
        return lines + (f'\nor, with the config named, as a whole: load_from = {path!r}' if self.whole else '')


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f'{name}({", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())})'


def _literal(value: Any) -> str:
    return _call('dict', value) if isinstance(value, Mapping) else repr(value)


def expected_network(args: argparse.Namespace, conversion: 'Conversion', source: str,
                     config: 'Config | None') -> tuple['nn.Module', Usage]:
    """Build what the weights must fit: a layer, the config's model, or the network that the weights tell.

    Raises:
        UserError: it cannot be told, or the config has no such part.
    """
    from mmengine.config import ConfigDict
    from mmengine.registry import MODELS
    from torch import nn

    from ..weights.convert.architecture import backbone_config, classifier_config, layer_options
    weights = conversion.state_dict
    if source == 'kcla-layer':
        from ..layers import KCLA
        options = layer_options(weights, args.carry)
        return KCLA(**options), Usage('layer', options, f'a KCLA layer of {options["channels"]} channels')
    if config is None:
        import_hosts(['mmpretrain'], with_models=True)
        backbone = backbone_config(weights, source)
        if args.depth is not None:
            backbone['depth'] = args.depth
        if source.startswith('detector-'):
            model = dict(type='ImageClassifier', backbone=backbone)
        else:
            model = classifier_config(weights, backbone, source, args.num_classes)
        return MODELS.build(dict(model, _scope_='mmpretrain')), Usage('backbone', backbone, _title(backbone, model))
    if not (config.get('model') or {}).get('backbone'):
        raise UserError(f'config {args.config} has no model with a backbone')
    scope = prepare_hosts(config) or 'mmengine'
    model = config.model.to_dict()
    backbone = {name: value for name, value in model['backbone'].items() if name != 'init_cfg'}
    whole = source.startswith('detector-') or model.get('head') is not None
    if not whole:  # a classifier's weights for another task: the backbone is what can be used
        backbone_alone = nn.ModuleDict(dict(backbone=MODELS.build(dict(backbone, _scope_=scope))))
        return backbone_alone, Usage('backbone', backbone, f'the backbone of {args.config}')
    network = MODELS.build(ConfigDict(model, _scope_=scope))
    return network, Usage('backbone', backbone, f'the model of {args.config}', whole)


def _title(backbone: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    title = (f'{backbone["type"].removeprefix("mmkcla.")}-{backbone["depth"]}, '
             f'{backbone["layer_attention"]["type"]}')
    return title + (f', {model["head"]["num_classes"]} classes' if 'head' in model else '')


def report(file: str, source: str, usage: Usage, conversion: 'Conversion', fit: 'Fit') -> str:
    """The account of a conversion, by number and first names."""
    from ..weights.convert.fit import COUNTER, some
    wanted = len(fit.matched) + len(fit.kept) + len(fit.missing) + len(fit.mismatched)
    rows = [('matched', f'{len(fit.matched)} of {wanted}')]
    dropped = [name for name in conversion.dropped if not name.endswith(COUNTER)]
    if dropped:
        rows.append(('dropped', f'{len(dropped)} that the released code builds and never uses '
                                f'({conversion.dropped_parameters:,} parameters): {some(dropped)}'))
    for kind, names, comment in (
            ('missing', fit.missing, ''), ('unexpected', fit.unexpected, ''),
            ('mismatched', list(fit.mismatched.values()), ''),
            ('kept', fit.kept, ' at their start, as the file cannot have them'),
            ('unchecked', fit.unchecked, ' passed through, being of no backbone')):
        if names or kind in ('missing', 'unexpected', 'mismatched'):
            rows.append((kind, f'{len(names)}{comment if names else ""}' + (f': {some(names)}' if names else '')))
    broken = [name for name, tensor in conversion.state_dict.items() if not tensor.isfinite().all()]
    if broken:
        rows.append(('not finite', f'{len(broken)} hold NaN or infinite values, as in the file: {some(broken)}'))
    lines = '\n'.join(f'  {kind:<11} {text}' for kind, text in rows)
    return f'{file}: {source}, {usage.title}\n{lines}'
