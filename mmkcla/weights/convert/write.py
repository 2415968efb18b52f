"""Write converted weights to a file."""
from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ...utils.files import whole_file
from ..checksum import KEY, digest_of, write_sealed


def write_weights(path: str | Path, state_dict: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write weights and ``meta`` atomically, with a checksum (:mod:`~mmkcla.weights.checksum`).

    A ``.pth`` file contains ``state_dict`` and ``meta`` and loads with ``weights_only=True``. A ``.safetensors`` file
    contains each entry of ``meta`` as a string; values that are not strings are encoded as JSON.

    Args:
        path: output file; suffix ``.safetensors`` selects that format, any other suffix the format of torch.
        state_dict: the weights; each tensor is copied, so that a view is saved without its whole storage.
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
                texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in meta.items()}
                file.write(save(weights, texts | {KEY: digest_of(weights)}))
            else:
                torch.save(dict(meta=dict(meta), state_dict=weights), content := io.BytesIO())
                write_sealed(file, content.getvalue())
    except OSError as error:
        raise UserError(f'cannot write {path}: {error.strerror or error}; choose another output file') from error
