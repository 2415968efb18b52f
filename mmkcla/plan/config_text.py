"""Pieces of generated configs: values as Python source, settings with their reasons as comments."""
from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..version import __version__
from .fingerprint import ImageSummary
from .rules import Setting

_WIDTH = 120
COUNTERPART = '''\
# The plain counterpart of kcla.py: the same network without the layer attention; only its work_dir differs, too.
_base_ = './kcla.py'

model = dict(backbone=dict(layer_attention=None))
'''


def header(task: str, source: str, machine: str) -> str:
    """The first lines of a config."""
    return comment(f'{task.capitalize()} of {source}. Written by mmkcla plan {__version__} for {machine}; the rules '
                   'are in docs/plan.md. It is yours to edit.')


def image_loader(images: ImageSummary, always: bool = False) -> str:
    """Source of the step that loads an image: with the bits of images of more than 8 bits, which the hosts' loader
    would leave nearly black.

    Args:
        images: statistics of the images.
        always: use the loader of this package for images of 8 bits, too.
    """
    deep = any(int(bits) > 8 for bits in images.bits)
    ours = ", _scope_='mmkcla'" if deep or always else ''
    bits = f', bits={images.significant_bits}' if images.significant_bits else ''
    return f"dict(type='LoadImageFromFile'{ours}{bits})"


def comment(text: str) -> str:
    """``text`` as comment lines."""
    return '\n'.join(f'# {line}' for line in textwrap.wrap(text, _WIDTH - 2, break_long_words=False,
                                                           break_on_hyphens=False))


def setting(name: str, chosen: Setting, value: str | None = None) -> str:
    """``name = value  # reason``, or the reason on the lines before where that is too long.

    Args:
        name: of the variable.
        chosen: value and reason.
        value: Python source in place of the value's own.
    """
    line = f'{name} = {value or source(chosen.value)}'
    if len(line) + 4 + len(chosen.reason) <= _WIDTH:
        return f'{line}  # {chosen.reason}'
    return f'{comment(chosen.reason)}\n{line}'


def source(value: Any) -> str:
    """Python source of plain values, with single quotes; the classes of a long list on several lines."""
    if isinstance(value, Path):
        return repr(value.as_posix())
    if isinstance(value, Mapping):
        return 'dict(' + ', '.join(f'{key}={source(item)}' for key, item in value.items()) + ')'
    if isinstance(value, tuple):
        return '(' + ', '.join(map(source, value)) + (',)' if len(value) == 1 else ')')
    if isinstance(value, list):
        return '[' + ', '.join(map(source, value)) + ']'
    return repr(value)


def names(variable: str, classes: list[str]) -> str:
    """``classes = ('a', 'b')``, wrapped where it is long."""
    line = f'{variable} = {source(tuple(classes))}'
    if len(line) <= _WIDTH:
        return line
    parts = [f'{name!r},' for name in classes]
    lines, current = [], '   '
    for part in parts:  # not textwrap: names may have spaces
        if len(current) + 1 + len(part) > _WIDTH:
            lines.append(current)
            current = '   '
        current += f' {part}'
    return '\n'.join([f'{variable} = (', *lines, current, ')'])
