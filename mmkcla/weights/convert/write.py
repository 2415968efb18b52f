"""Converted weights as a file."""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ...utils.files import whole_file


def write_weights(path: str | Path, state_dict: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write weights and ``meta``, whole or not at all.

    A ``.pth`` holds ``state_dict`` and ``meta`` and loads with ``weights_only=True``; a ``.safetensors`` has each entry
    of ``meta`` as a string, those that are not one as JSON.

    Args:
        path: the file; ``.safetensors`` for that format, any other suffix for torch's.
        state_dict: the weights; each is copied, so that views do not take their whole storage along.
        meta: plain values.

    Raises:
        UserError: the file cannot be written.
    """
    path = Path(path)
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state_dict.items()}
    try:
        with whole_file(path) as file:
            if path.suffix == '.safetensors':
                from safetensors.torch import save
                file.write(save(weights, {name: value if isinstance(value, str) else json.dumps(value)
                                          for name, value in meta.items()}))
            else:
                torch.save(dict(meta=dict(meta), state_dict=weights), file)
    except OSError as error:
        raise UserError(f'cannot write {path}: {error.strerror or error}; choose another output') from error
