"""Sources of weights, and how to recognise them by parameter names."""
from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import UserError

CLASSIFIER_SOURCES = (
    'cifar-kcla', 'cifar-mrla-light', 'cifar-mrla-base', 'cifar-softmax', 'cifar-dla-light', 'imagenet-kcla',
    'imagenet-mrla-light', 'imagenet-mrla-base', 'imagenet-dla-light')
DETECTOR_SOURCES = ('detector-kcla', 'detector-mrla-light', 'detector-dla-light')
PLAIN_SOURCES = ('torchvision', 'mmpretrain')
SOURCES = ('kcla-layer', *CLASSIFIER_SOURCES, *DETECTOR_SOURCES, *PLAIN_SOURCES)

BLOCK = re.compile(r'(?:stages\.(?P<stage>\d+)|layer(?P<layer>[1-9]\d*))\.(?:(?P<part>layers|attention)\.)?'
                   r'(?P<block>\d+)\.(?P<rest>.+)')
_DETECTOR_PARTS = re.compile(r'(?:neck|rpn_head|roi_head|bbox_head|mask_head)\.')
_UNET_PARTS = re.compile(r'encoder\.(?:layer\d|conv1)\.|up\d\.conv\.double_conv\.')
# entries that identify a method; the first match wins
_MARKS = (
    ('kcla', (r'(?:^|\.)norm_d$', )),
    ('dla-light', (r'\.lstm\.w_ih\.', r'\.lambda_t$')),
    ('dla-base', (r'\.lstm\.w_ih\.', )),
    ('mrla-light', (r'\.lambda_t$', )),
    ('mrla-base', (r'\.Wq\.weight$', )),
)


def bare_name(name: str) -> str:
    """Remove the leading ``module.`` and ``backbone.`` of wrappers from ``name``."""
    return re.sub(r'^(?:module\.|backbone\.)+', '', name)


def stage_of(match: re.Match) -> int:
    """Return the stage number, from 0, in a match of :data:`BLOCK` or of a pattern with the same groups."""
    return int(match['stage']) if match['stage'] else int(match['layer']) - 1


def recognise(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that the names fit: several if the names are ambiguous, none if they are unknown.

    Args:
        names: names in a state dict, with or without a leading ``module.`` and ``backbone.``.

    Returns:
        Entries of :data:`SOURCES`. On CIFAR, MRLA-base and standard layer attention have the same names and shapes; a
        plain ResNet without classifier may be from torchvision or mmpretrain.
    """
    names = [name.removeprefix('module.') for name in names]
    bare = [bare_name(name) for name in names]
    if 'norm_d' in bare:
        return ('kcla-layer', )
    if any(name.startswith('layer_attentions.') or _UNET_PARTS.match(name) for name in bare):
        return ()
    stages = {stage_of(match) for match in map(BLOCK.match, bare) if match}
    if not stages:
        return ()
    method = _method(bare)
    if method is None:
        return _plain(names, bare)
    if any(map(_DETECTOR_PARTS.match, bare)):
        fitting = [f'detector-{method}']
    else:
        fitting = [f'{"cifar" if max(stages) < 3 else "imagenet"}-{method}']
    if fitting == ['cifar-mrla-base']:
        fitting.append('cifar-softmax')
    return tuple(source for source in fitting if source in SOURCES)


def _method(bare: list[str]) -> str | None:
    for method, marks in _MARKS:
        if all(any(re.search(mark, name) for name in bare) for mark in marks):
            return method
    return None


def _plain(names: list[str], bare: list[str]) -> tuple[str, ...]:
    if any(map(_DETECTOR_PARTS.match, bare)):
        return ()
    if any(name.startswith('fc.') for name in bare):
        return ('torchvision', )
    if any(name.startswith(('backbone.', 'head.', 'stem.')) for name in names):
        return ('mmpretrain', )
    return PLAIN_SOURCES


def check_source(names: Iterable[str], source: str) -> None:
    """Check that the names fit ``source``.

    Raises:
        UserError: they do not; reports the source that they fit, if known.
    """
    names = list(names)
    fitting = recognise(names)
    if source not in fitting:
        raise UserError(f'the checkpoint is not from {source}: ' + (
            f'its entries are those of {" or ".join(fitting)}' if fitting else describe_unknown(names)))


def describe_unknown(names: Iterable[str]) -> str:
    """Describe names for which :func:`recognise` finds no source."""
    bare = [bare_name(name) for name in names]
    if any('layer_attentions.' in name for name in bare):
        return 'it already has the names of this package and needs no conversion'
    if any(map(_UNET_PARTS.match, bare)):
        return ("it is a U-Net of KCLA's segmentation code, which cannot be converted: its carry mixes all channels in "
                'one group, which is not supported here, and its decoder crops')
    if any(map(_DETECTOR_PARTS.match, bare)) and _method(bare) is None:
        return 'it is a detector without layer attention and needs no conversion'
    if _method(bare) == 'dla-base':
        return 'it has a DSU and no lambda_t, like DLA-B, which cannot be converted'
    starts = ', '.join(sorted({name.split('.')[0] for name in bare})[:6])
    return f'its entries fit no known source; they start with: {starts or "(no entries)"}'
