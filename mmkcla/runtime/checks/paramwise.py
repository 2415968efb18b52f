"""Settings for single parameters (``paramwise_cfg``) that have no effect."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from ...utils.text import did_you_mean
from .parts import names_of


def paramwise_notes(model: nn.Module, wrapper: Any) -> Iterator[str]:
    """Yield one line for each entry of ``paramwise_cfg`` that changes no parameter of the model. Only the default
    constructor of mmengine is judged."""
    rules = wrapper.get('paramwise_cfg') or {}
    if not rules or wrapper.get('constructor', 'DefaultOptimWrapperConstructor') != 'DefaultOptimWrapperConstructor':
        return
    place = 'optim_wrapper.paramwise_cfg'
    parameters = dict(model.named_parameters())
    yield from _custom_keys(rules.get('custom_keys') or {}, parameters, f'{place}.custom_keys')
    names, complete = names_of((wrapper.get('optimizer') or {}).get('type'), None)
    for key, entries in (rules.get('custom_keys') or {}).items() if complete else ():
        for name in sorted(set(entries) - names - {'lr_mult', 'decay_mult'}):
            yield (f'{place}.custom_keys.{key}.{name} is only written into the parameter group: the optimizer does not '
                   'read it')
    trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    for name, found in _matched(model, trained).items():
        if rules.get(name) is not None and not found:
            yield f'{place}.{name} has no effect: the model has no such trained parameters'
    decay = (wrapper.get('optimizer') or {}).get('weight_decay')
    mults = [name for name in rules if name.endswith('_decay_mult') and rules[name] is not None]
    if mults and not decay:
        yield f'{place}.{mults[0]} has no effect, since optimizer.weight_decay is {decay}'


def _custom_keys(keys: dict, parameters: dict[str, nn.Parameter], place: str) -> Iterator[str]:
    order = sorted(sorted(keys), key=len, reverse=True)  # mmengine's: the longest key counts
    used: dict[str, list[str]] = {key: [] for key in keys}
    for name in parameters:
        key = next((key for key in order if key in name), None)
        if key is not None:
            used[key].append(name)
    modules = {'.'.join(name.split('.')[:depth]) for name in parameters for depth in range(1, name.count('.') + 2)}
    modules |= {part for name in parameters for part in name.split('.')}
    for key, names in used.items():
        if not any(key in name for name in parameters):
            yield f'{place}: {key!r} matches no parameter{did_you_mean(key, sorted(modules))}'
        elif not names:
            yield f'{place}: {key!r} has no effect, since a longer key matches all of its parameters'
        elif not any(parameters[name].requires_grad for name in names):
            yield f'{place}: {key!r} has no effect, since its parameters are frozen'


def _matched(model: nn.Module, trained: set[str]) -> dict[str, bool]:
    """Return whether the model has trained parameters for each rule."""
    found = dict.fromkeys(('norm_decay_mult', 'bias_lr_mult', 'bias_decay_mult', 'dwconv_decay_mult'), False)
    norms = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm, nn.GroupNorm, nn.LayerNorm)
    for prefix, module in model.named_modules():
        own = {name for name, _ in module.named_parameters(recurse=False)
               if (f'{prefix}.{name}' if prefix else name) in trained}
        if isinstance(module, norms):
            found['norm_decay_mult'] |= bool(own)
        elif 'bias' in own:
            found['bias_lr_mult'] = found['bias_decay_mult'] = True
        if isinstance(module, nn.Conv2d) and module.in_channels == module.groups:
            found['dwconv_decay_mult'] |= bool(own)
    return found
