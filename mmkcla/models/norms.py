"""Build the norm layers of layer attentions from a ``norm_cfg``, in backbones and necks."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcv.cnn import build_norm_layer
from torch import nn

from ..errors import UserError
from ..utils.text import one_line


def check_norm_cfg(norm_cfg: Any) -> dict[str, Any]:
    """Validate ``norm_cfg`` and return a copy.

    Raises:
        UserError: if ``norm_cfg`` is not a dict with a ``type``.
    """
    if not isinstance(norm_cfg, Mapping) or 'type' not in norm_cfg:
        raise UserError(f'norm_cfg={norm_cfg!r} must be a dict with a type, for example dict(type=\'BN\')')
    return dict(norm_cfg)


def build_norm(norm_cfg: dict[str, Any], channels: int) -> nn.Module:
    """Build a norm layer for the given number of channels.

    Raises:
        UserError: if mmcv cannot build it.
    """
    try:
        return build_norm_layer(norm_cfg, channels)[1]
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        hint = '; GN needs num_groups' if norm_cfg['type'] == 'GN' and 'num_groups' not in norm_cfg else ''
        raise UserError(f'norm_cfg={norm_cfg} cannot be built for {channels} channels{hint}'
                        + (f' ({one_line(error, 120)})' if str(error) else '')) from error
