"""Say where the head width of a method had to give way."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmengine.logging import print_log

from ..layers import LayerAttention
from ..layers.common import Preferred


def log_head_widths(name: str, method: type[LayerAttention], options: Mapping[str, Any],
                    layers: Iterable[LayerAttention]) -> None:
    """Log the head widths that differ from the method's default, if the user has set none.

    Args:
        name: name of the network or neck.
        method: the layer attention.
        options: the options it was built with.
        layers: the layers.
    """
    wanted = options.get('head_channels', method.options().get('head_channels'))
    if not isinstance(wanted, Preferred):
        return
    widths: dict[int, None] = {}
    for layer in layers:
        if (width := getattr(layer, 'head_channels', wanted)) != wanted:
            widths[width] = None
    if widths:
        print_log(f'{name}: head_channels={wanted} of {method.__name__} does not divide all channels; the heads have '
                  f'{", ".join(map(str, widths))} channels there', logger='current')
