"""Load checkpoints without running code from them."""
from __future__ import annotations

import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..utils.files import parse_json
from .checksum import verify, verify_digest
from .file_kinds import check_sizes, other_kind
from .numpy_values import Array, numpy_globals, restored
from .plain_values import plain_globals
from .tensor_kinds import check_tensors

_LOCK = threading.Lock()  # the allowed names are global in torch


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Load a ``.pth``/``.pt``/``.pth.tar`` or ``.safetensors`` file to the CPU without running code from it.

    Pickles may contain tensors, plain containers and the objects in mmengine's own checkpoints; anything else is
    refused.

    Raises:
        UserError: the file is missing, damaged (see :mod:`~mmkcla.weights.checksum`) or not a checkpoint, it has
            tensors without plain, dense values, or loading it would run code.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f'checkpoint {path} ' + ('is not a file' if path.exists() else 'does not exist'))
    if path.suffix == '.safetensors':
        return _read_safetensors(path)
    try:
        _check_archive(path)
        with _only_allowing(_allowed_globals()):
            checkpoint = restored(torch.load(path, map_location='cpu', weights_only=True))
        if isinstance(checkpoint, Mapping):
            check_tensors(checkpoint, path)
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise UserError(_unreadable(path, error)) from error
    if not isinstance(checkpoint, Mapping):
        raise UserError(f'checkpoint {path} contains a {type(checkpoint).__name__}, not a dictionary of weights')
    return dict(checkpoint)


def _check_archive(path: Path) -> None:
    """Check a zip archive before torch reads it; other files are left to torch."""
    if not zipfile.is_zipfile(path):
        return
    if kind := other_kind(path):
        raise UserError(f'checkpoint {path} is {kind}')
    check_sizes(path)
    verify(path)


def _read_safetensors(path: Path) -> dict[str, Any]:
    """The weights of a ``.safetensors`` file, and of one that this package wrote ``meta`` with the record of the
    methods."""
    from safetensors import safe_open
    try:
        with safe_open(path, 'pt') as file:  # checks the header and the bounds of all tensors
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except Exception as error:  # SafetensorError, and others for types that torch does not have
        reason = other_kind(path) or first_sentence(error)
        raise UserError(f'checkpoint {path} is truncated or not a safetensors file ({reason})') from error
    verify_digest(weights, metadata, path)
    try:
        return {'state_dict': weights, 'meta': {'mmkcla': parse_json(metadata['mmkcla'])}}
    except (KeyError, ValueError):
        return {'state_dict': weights}


def _unreadable(path: Path, error: Exception) -> str:
    """Return in one line why torch did not load the file, without its advice to trust the file."""
    if isinstance(error, PermissionError):
        return f'checkpoint {path} cannot be read: {error.strerror}'
    with open(path, 'rb') as file:
        head = file.read(40)
    text = str(error)
    wanted = re.search(r'GLOBAL (\S+)|(?:function|but got) <([^>]+)>', text)
    kind = other_kind(path)
    if wanted or (kind is None and re.match(rb'PK|\x80[\2-\5]', head) and 'Unsupported operand' in text):
        wanted = (wanted[1] or wanted[2]) if wanted else 'a pickle protocol that torch does not write'
        return (f'checkpoint {path} contains more than weights ({wanted}); it is refused, since loading it could run '
                'code. If you trust it, save only its state_dict')
    if kind:
        return f'checkpoint {path} is {kind}'
    if not head:
        reason = 'the file is empty'
    elif re.fullmatch(rb'[\t\r\n -~]+', head):
        reason = f'the file starts with {head.decode().splitlines()[0]!r}'
    elif isinstance(error, (EOFError, OSError)):  # OSError: a seek beyond the end
        reason = 'the file ends too early'
    else:
        text = text.rpartition('WeightsUnpickler error:')[2]
        reason = first_sentence(text or type(error).__name__)
    return f'checkpoint {path} is truncated or not a checkpoint ({reason})'


@contextmanager
def _only_allowing(names: list[Any]) -> Iterator[None]:
    """Allow exactly ``names`` while a file is read; what others allowed in this process returns afterwards."""
    if not hasattr(torch.serialization, 'clear_safe_globals'):  # torch before 2.5
        yield
        return
    with _LOCK:
        others = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(names)
        try:
            yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(others)


def _allowed_globals() -> list[Any]:
    """Globals in mmengine checkpoints besides weights, each replaced by a constructor that runs no foreign code."""
    stand_ins = {**numpy_globals(), **plain_globals()}
    return [Array, *(_under(*place.rsplit('.', 1), constructor) for place, constructor in stand_ins.items())]


def _under(module: str, name: str, constructor: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``constructor`` under the name that a pickle uses for it."""
    if isinstance(constructor, type) and constructor.__module__.startswith(__package__):  # a class with a state
        return type(name, (constructor,), {'__module__': module, '__qualname__': name})

    def call(*args: Any) -> Any:
        return constructor(*args)

    call.__module__, call.__qualname__ = module, name
    return call


def first_sentence(error: Exception | str) -> str:
    """Return the first line of an error, up to the first full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].split('. ')[0][:160]


def state_dict_of(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint: under ``state_dict``, ``model``, ``model_ema`` or ``state_dict_ema`` (in this
    order), else at the top level. A leading ``module.`` is removed from the names.

    Raises:
        UserError: there are no weights, or a name occurs twice.
    """
    places = ('state_dict', 'model', 'model_ema', 'state_dict_ema')
    weights = next((checkpoint[key] for key in places if isinstance(checkpoint.get(key), Mapping)), checkpoint)
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        if isinstance(value, Tensor):
            bare = str(name).removeprefix('module.')
            if bare in found:
                raise UserError(f'the checkpoint contains {bare!r} twice, with and without \'module.\'')
            found[bare] = value
    if not found:
        raise UserError('the checkpoint contains no weights; its keys are: '
                        + (', '.join(map(str, list(checkpoint)[:8])) or '(none)'))
    return found


def weights_below(checkpoint: Mapping[str, Any], source: str | Path, prefix: str | None) -> dict[str, Tensor]:
    """The weights of a checkpoint with the prefix, without it; all weights if there is none.

    Raises:
        UserError: no entry has the prefix; names ``source``.
    """
    weights = state_dict_of(checkpoint)
    if not prefix:
        return weights
    prefix = prefix if prefix.endswith('.') else prefix + '.'
    below = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if not below:
        raise UserError(f'checkpoint {source} has no entry with the prefix {prefix!r}; its entries start with: '
                        + ', '.join(sorted({name.split(".")[0] for name in weights})[:8]))
    return below
