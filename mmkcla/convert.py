"""Other people's weights in our names."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from .errors import UserError

StateDict = dict[str, Tensor]

# a layer of the KCLA paper's code -> ours
_KCLA_LAYER = {
    'Wq.': 'query.',
    'Wk.': 'key.',
    'Wv.': 'value.',
    'head_att.': 'head_mixing.',
    'bn_attention.': 'norm.',
    'adjust_channel.': 'carry.conv.',
    'u_bn.': 'carry.norm.',
    'u_Wk.': 'carry.key.',
}
# what the reference builds but never uses, by what the layer carries
_KCLA_DEAD = {
    'stage': (),
    'block': ('carry.conv.',),
    'none': ('carry.',),
}


def _convert_kcla_layer(state_dict: Mapping[str, Tensor], carry: str = 'stage') -> StateDict:
    """One layer of the reference KCLA; its ``norm_d`` is 1/P."""
    if carry not in _KCLA_DEAD:
        raise UserError(f'carry={carry!r} is unknown; choose one of: {", ".join(_KCLA_DEAD)}')
    converted = {}
    for name, tensor in state_dict.items():
        if name == 'norm_d':
            converted['log_temperature'] = -tensor.double().flatten().log()
            continue
        prefix = next((prefix for prefix in _KCLA_LAYER if name.startswith(prefix)), None)
        if prefix is None:
            raise UserError(f'kcla-layer: {name!r} is not an entry of a reference KCLA layer; expected are norm_d, '
                            + ', '.join(prefix.rstrip('.') for prefix in _KCLA_LAYER))
        converted[_KCLA_LAYER[prefix] + name[len(prefix):]] = tensor
    return {name: tensor for name, tensor in converted.items() if not name.startswith(_KCLA_DEAD[carry])}


_SOURCES: dict[str, Callable[..., StateDict]] = {'kcla-layer': _convert_kcla_layer}


def convert_reference(state_dict: Mapping[str, Tensor], source: str, **options: str) -> StateDict:
    """Map a state dict of a paper's released code to our names; entries the reference never uses are dropped.

    Args:
        state_dict: names as in the reference.
        source: ``'kcla-layer'``: one KCLA layer, without a prefix. Option ``carry``: ``'stage'`` if the layer carries
            over from a previous stage (or has no carry at all), ``'block'`` if it carries inside its stage (the
            reference ResNet-101's block 11, whose convolution is dead), ``'none'`` if it opens the network (the
            reference builds a dead carry there).

    Returns:
        A state dict for ours; temperatures in float64, the rest as given.

    Raises:
        UserError: for an unknown source, or an entry that does not belong to it.
    """
    if source not in _SOURCES:
        raise UserError(f'unknown source {source!r}; known are: {", ".join(sorted(_SOURCES))}')
    return _SOURCES[source](state_dict, **options)
