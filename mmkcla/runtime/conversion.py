"""Recognise the source of converted weights, build the network they must fit, and report the conversion."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..utils.text import listed
from .hosts import import_hosts, prepare_hosts

if TYPE_CHECKING:
    from mmengine.config import Config
    from torch import nn

    from ..weights.convert import Conversion
    from ..weights.convert.fit import Fit


def recognise_source(names: Mapping[str, Any]) -> str:
    """Return the only source that these names fit.

    Raises:
        UserError: no source or several sources fit.
    """
    from ..weights.convert import recognise
    from ..weights.convert.sources import describe_unknown
    fitting = recognise(names)
    if len(fitting) == 1:
        return fitting[0]
    raise UserError(f'the names fit several sources; choose one: --source {" or --source ".join(fitting)}' if fitting
                    else describe_unknown(names))


@dataclass(frozen=True)
class Usage:
    """The part of a model that the weights belong to, and how to use them.

    Attributes:
        part: ``'backbone'`` or ``'layer'``.
        arguments: constructor arguments of the part.
        title: description for messages.
        whole: whether the weights were compared with the whole model of a config.
    """

    part: str
    arguments: dict[str, Any]
    title: str
    whole: bool = False

    def text(self, path: str) -> str:
        """Return usage lines for a config, or for Python."""
        if self.part == 'layer':
            return ('use it with:\n'
                    f'layer = mmkcla.layers.{_call("KCLA", self.arguments)}\n'
                    f'layer.load_state_dict(mmkcla.checkpoint.fetch_state_dict({path!r}))')
        init = _call('dict', dict(type='Pretrained', checkpoint=path, prefix='backbone.'))
        lines = f'use it with:\nbackbone={_call("dict", self.arguments)[:-1]},\n    init_cfg={init})'
        return lines + (f'\nor, for the whole model of that config: load_from = {path!r}' if self.whole else '')


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f'{name}({", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())})'


def _literal(value: Any) -> str:
    return _call('dict', value) if isinstance(value, Mapping) else repr(value)


def expected_network(conversion: 'Conversion', source: str, config: 'Config | None', carry: str = 'stage',
                     depth: int | None = None, num_classes: int | None = None) -> tuple['nn.Module', Usage]:
    """Build the network the weights must fit: a layer, the model of the config, or a network inferred from the weights.

    Args:
        conversion: the conversion of the file.
        source: origin of the weights.
        config: config of the target model (``filename`` is its path); None: infer the network from the weights.
        carry: see :func:`~mmkcla.convert.convert_reference`.
        depth, num_classes: expected values, if there is no config.

    Raises:
        UserError: the network cannot be inferred, or the config has no such part.
    """
    from mmengine.config import ConfigDict
    from mmengine.registry import MODELS
    from torch import nn

    from ..weights.convert.architecture import backbone_config, classifier_config, layer_options
    weights = conversion.state_dict
    if source == 'kcla-layer':
        from ..layers import KCLA
        options = layer_options(weights, carry)
        return KCLA(**options), Usage('layer', options, f'a KCLA layer of {options["channels"]} channels')
    if config is None:
        import_hosts(['mmpretrain'], with_models=True)
        backbone = backbone_config(weights, source)
        if depth is not None:
            backbone['depth'] = depth
        if source.startswith('detector-'):
            model = dict(type='ImageClassifier', backbone=backbone)
        else:
            model = classifier_config(weights, backbone, source, num_classes)
        return MODELS.build(dict(model, _scope_='mmpretrain')), Usage('backbone', backbone, _title(backbone, model))
    if not (config.get('model') or {}).get('backbone'):
        raise UserError(f'config {config.filename} has no model with a backbone')
    scope = prepare_hosts(config) or 'mmengine'
    model = config.model.to_dict()
    backbone = {name: value for name, value in model['backbone'].items() if name != 'init_cfg'}
    whole = source.startswith('detector-') or model.get('head') is not None
    if not whole:  # a classifier's weights for another task: only the backbone can be used
        backbone_alone = nn.ModuleDict(dict(backbone=MODELS.build(dict(backbone, _scope_=scope))))
        return backbone_alone, Usage('backbone', backbone, f'the backbone of {config.filename}')
    network = MODELS.build(ConfigDict(model, _scope_=scope))
    return network, Usage('backbone', backbone, f'the model of {config.filename}', whole)


def _title(backbone: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    title = (f'{backbone["type"].removeprefix("mmkcla.")}-{backbone["depth"]}, '
             f'{backbone["layer_attention"]["type"]}')
    return title + (f', {model["head"]["num_classes"]} classes' if 'head' in model else '')


def report(file: str, source: str, usage: Usage, conversion: 'Conversion', fit: 'Fit') -> str:
    """Summarise a conversion: counts and the first names of each kind."""
    from ..weights.convert.fit import COUNTER
    wanted = len(fit.matched) + len(fit.kept) + len(fit.missing) + len(fit.mismatched)
    rows = [('matched', f'{len(fit.matched)} of {wanted}')]
    dropped = [name for name in conversion.dropped if not name.endswith(COUNTER)]
    if dropped:
        rows.append(('dropped', f'{len(dropped)} that the released code creates but never uses '
                                f'({conversion.dropped_parameters:,} parameters): {listed(dropped)}'))
    for kind, names, comment in (
            ('missing', fit.missing, ''), ('unexpected', fit.unexpected, ''),
            ('mismatched', list(fit.mismatched.values()), ''),
            ('kept', fit.kept, ' at their initial values, as the file cannot contain them'),
            ('unchecked', fit.unchecked, ' copied unchanged, not part of the backbone')):
        if names or kind in ('missing', 'unexpected', 'mismatched'):
            rows.append((kind, f'{len(names)}{comment if names else ""}' + (f': {listed(names)}' if names else '')))
    lines = '\n'.join(f'  {kind:<11} {text}' for kind, text in rows)
    return f'{file}: {source}, {usage.title}\n{lines}'
