"""Reading checkpoints safely, and saying what of them fits a model."""
from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .errors import UserError


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a ``.pth``/``.pt``/``.pth.tar`` or ``.safetensors`` file on the CPU without running code from it.

    Pickles may hold tensors, plain containers and what mmengine's own checkpoints hold; anything else is refused.

    Raises:
        UserError: if the file is missing, truncated, no checkpoint, or wants to run code.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f'checkpoint {path} ' + ('is not a file' if path.exists() else 'does not exist'))
    if path.suffix == '.safetensors':
        from safetensors import SafetensorError
        from safetensors.torch import load_file
        try:
            return {'state_dict': load_file(path)}
        except SafetensorError as error:
            raise UserError(f'checkpoint {path} is truncated or not a safetensors file ({error})') from error
    try:
        with torch.serialization.safe_globals(_allowed_globals()):
            checkpoint = torch.load(path, map_location='cpu', weights_only=True)
    except pickle.UnpicklingError as error:
        if 'Unsupported global' in str(error) or 'GLOBAL' in str(error):
            raise UserError(f'checkpoint {path} holds more than weights ({_first_line(error)}); it is refused, since '
                            'loading it could run code. Save its state_dict alone, where you trust it') from error
        raise UserError(f'checkpoint {path} is truncated or not a checkpoint ({_first_line(error)})') from error
    except (EOFError, RuntimeError, OSError, ValueError, KeyError) as error:
        raise UserError(f'checkpoint {path} is truncated or not a checkpoint ({_first_line(error)})') from error
    if not isinstance(checkpoint, Mapping):
        raise UserError(f'checkpoint {path} holds a {type(checkpoint).__name__}, not a dictionary of weights')
    return dict(checkpoint)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def _allowed_globals() -> list[Any]:
    """What mmengine writes beside weights: log histories, which are numpy arrays."""
    import numpy as np
    core = getattr(np, '_core', None) or np.core
    allowed = [core.multiarray._reconstruct, core.multiarray.scalar, np.ndarray, np.dtype,
               *{type(np.dtype(t)) for t in (np.uint32, np.float32, np.float64, np.int32, np.int64, np.bool_)}]
    try:
        from mmengine.logging.history_buffer import HistoryBuffer
    except ImportError:
        return allowed
    return [*allowed, HistoryBuffer]


def state_dict_of(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights in a checkpoint: under ``state_dict``, ``model`` or bare; a leading ``module.`` is taken off.

    Raises:
        UserError: if there are none.
    """
    weights = next((checkpoint[key] for key in ('state_dict', 'model') if isinstance(checkpoint.get(key), Mapping)),
                   checkpoint)
    weights = {str(name).removeprefix('module.'): value for name, value in weights.items() if isinstance(value, Tensor)}
    if not weights:
        raise UserError(f'the checkpoint holds no weights; its keys are: {", ".join(map(str, list(checkpoint)[:8]))}')
    return weights


@dataclass
class LoadReport:
    """How a state dict fits a module, by names of its parameters and buffers."""

    matched: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Everything the model has came from the checkpoint, and nothing was left over."""
        return not (self.missing or self.unexpected or self.mismatched)

    def summary(self) -> str:
        """One line: the four counts, and the first names of what did not fit."""
        counts = (f'{len(self.matched)} matched, {len(self.missing)} missing, {len(self.unexpected)} unexpected, '
                  f'{len(self.mismatched)} mismatched in shape')
        firsts = [f'{kind}: {_some(getattr(self, kind))}' for kind in ('missing', 'unexpected', 'mismatched')
                  if getattr(self, kind)]
        return f'{counts} ({"; ".join(firsts)})' if firsts else counts


def _some(names: list[str], count: int = 3) -> str:
    rest = len(names) - count
    return ', '.join(names[:count]) + (f' and {rest} more' if rest > 0 else '')


def compare(model: nn.Module, state_dict: Mapping[str, Tensor]) -> LoadReport:
    """Say how ``state_dict`` fits ``model``, without loading it. BN step counters, which old files lack, do not count
    as missing; names the checkpoint stores twice for a wrapper do not count twice."""
    ours = model.state_dict()
    report = LoadReport()
    for name, tensor in ours.items():
        if name in state_dict:
            same = tuple(state_dict[name].shape) == tuple(tensor.shape)
            (report.matched if same else report.mismatched).append(name)
        elif not name.endswith('num_batches_tracked'):
            report.missing.append(name)
    report.unexpected = [name for name in state_dict if name not in ours]
    return report


def load_matching(model: nn.Module, state_dict: Mapping[str, Tensor]) -> LoadReport:
    """Load what fits by name and shape; the report says what did not."""
    report = compare(model, state_dict)
    model.load_state_dict({name: state_dict[name] for name in report.matched}, strict=False)
    return report


def fetch_state_dict(source: str, prefix: str | None = None) -> dict[str, Tensor]:
    """The weights a config's ``Pretrained`` names: a local file (read safely) or an address mmengine knows
    (``torchvision://``, ``open-mmlab://``, ``https://``).

    Args:
        source: file or address.
        prefix: take the entries below it, and take it off.

    Raises:
        UserError: if the file cannot be read, or nothing stands below the prefix.
    """
    if '://' in source:
        from mmengine.runner import CheckpointLoader
        checkpoint = CheckpointLoader.load_checkpoint(source, map_location='cpu', logger='current')
    else:
        checkpoint = read_checkpoint(source)
    weights = state_dict_of(checkpoint)
    if not prefix:
        return weights
    prefix = prefix if prefix.endswith('.') else prefix + '.'
    below = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if not below:
        raise UserError(f'checkpoint {source} has no entry below prefix {prefix!r}; its entries start with: '
                        + ', '.join(sorted({name.split(".")[0] for name in weights})[:8]))
    return below
