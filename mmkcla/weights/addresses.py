"""Find the file behind a checkpoint's address: a path, an http(s) URL, or the name of a published model.

Every scheme of mmengine ends in :func:`~mmkcla.weights.reading.read_checkpoint`, which runs no code.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import Tensor

from ..errors import UserError
from ..utils.files import sha256_of
from ..utils.text import did_you_mean, one_line
from .finite import require_finite
from .reading import first_sentence, read_checkpoint, state_dict_of, weights_below

_SCHEME = re.compile(r'([\w.+-]+(?::[\w.+-]+)?)://')
_WEB = ('http', 'https')
_STORED = ('s3', 'petrel')  # object stores that mmengine's file backends read
_NAMED = ('torchvision', 'modelzoo', 'open-mmlab', 'openmmlab', 'mmcls')
_STALE = 3600  # seconds without a byte, after which a download is no longer running
_HASH = re.compile(r'-([0-9a-f]{8,64})\.')  # in file names, as torch.hub and OpenMMLab write it: start of the SHA-256


def is_url(address: str | os.PathLike) -> bool:
    """Whether ``address`` has a scheme, e.g. ``https://`` or ``torchvision://``."""
    return _SCHEME.match(str(address)) is not None


def read_address(address: str | os.PathLike) -> dict[str, Any]:
    """Load a checkpoint from any address without running code from it.

    Raises:
        UserError: the scheme or the model name is unknown, the file cannot be downloaded, does not have the hash in its
            name, has NaN or infinite weights, or is refused by :func:`~mmkcla.weights.reading.read_checkpoint`.
    """
    text = str(address)
    match = _SCHEME.match(text)
    if match and match[1].rpartition(':')[2] in _STORED:
        checkpoint = _read_stored(text)
    else:
        checkpoint = read_checkpoint(download(text))
    require_finite(checkpoint, text)
    if match and match[1] == 'mmcls':
        from mmengine.runner.checkpoint import _process_mmcls_checkpoint
        return _process_mmcls_checkpoint(checkpoint)
    return checkpoint


def check_address(address: str | os.PathLike) -> None:
    """Check an address before a run, without a download: read a local file; of others, check the scheme and the name.

    Raises:
        UserError: as :func:`read_address`.
    """
    text = str(address)
    match = _SCHEME.match(text)
    if match is None:
        checkpoint = read_address(text)
        try:
            state_dict_of(checkpoint)
        except UserError as error:
            raise UserError(f'{text}: {error}') from error
    elif match[1] in _NAMED:
        _address_of(text, match[1], text[match.end():])
    elif match[1].rpartition(':')[2] not in (*_STORED, *_WEB):
        raise UserError(_unknown_scheme(text))


def fetch_checkpoint(source: str | os.PathLike) -> dict[str, Any]:
    """Load the checkpoint of a ``Pretrained`` entry, see :func:`read_address`.

    Raises:
        UserError: as :func:`read_address`, also if the download fails.
    """
    try:
        return read_address(source)
    except OSError as error:  # includes the errors of urllib
        raise UserError(f'checkpoint {source} cannot be downloaded ({first_sentence(error)}); without network access, '
                        'use the path of a local copy') from error


def fetch_state_dict(source: str | os.PathLike, prefix: str | None = None) -> dict[str, Tensor]:
    """Load the weights of a ``Pretrained`` entry, see :func:`fetch_checkpoint`.

    Args:
        source: file or address.
        prefix: return only the entries with this prefix, and remove it from their names.

    Raises:
        UserError: the file cannot be read or downloaded, or no entry has the prefix.
    """
    return weights_below(fetch_checkpoint(source), str(source), prefix)


def download(address: str) -> str:
    """Return the local file of ``address``: a path unchanged, a download once per address and machine (on rank 0).

    Downloads are kept in torch's cache in a folder for each address, since addresses can share a file name. A file of
    another program in the cache is used if its name contains its hash. Addresses in an object store are returned
    unchanged.

    Raises:
        UserError: the scheme or the model name is unknown, or the file does not have the hash in its name.
        OSError: the download fails.
    """
    match = _SCHEME.match(address)
    if match is None or match[1].rpartition(':')[2] in _STORED:
        return address
    if match[1] in _NAMED:
        address = _address_of(address, match[1], address[match.end():])
        if not is_url(address):
            return address
        match = _SCHEME.match(address)
    if match is None or match[1] not in _WEB:
        raise UserError(_unknown_scheme(address))
    return _download(address)


def _unknown_scheme(address: str) -> str:
    known = ', '.join(f'{scheme}://' for scheme in (*_WEB, *_NAMED, *_STORED))
    return f'checkpoint {address}: unknown scheme; use a path or one of {known}'


def _download(address: str) -> str:
    from mmengine.dist import barrier, is_main_process
    cache = Path(torch.hub.get_dir()) / 'checkpoints'
    name = Path(urlparse(address).path).name or 'checkpoint.pth'
    shared = cache / name
    wanted = match[1] if (match := _HASH.search(name)) else None
    if wanted and shared.is_file() and sha256_of(shared).startswith(wanted):
        return str(shared)
    target = cache / hashlib.sha256(address.encode()).hexdigest()[:16] / name
    if is_main_process() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        try:
            torch.hub.download_url_to_file(address, str(target), hash_prefix=wanted)
        except RuntimeError as error:  # raised for another hash
            raise UserError(f'checkpoint {address} does not have the hash {wanted} in its name ({one_line(error)}); '
                            'the file is damaged or another one') from error
    barrier()
    return str(target)


def _remove_stale(folder: Path) -> None:
    """Delete what interrupted downloads of torch have left in the folder of an address."""
    for path in folder.glob('*.partial'):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink()


def _address_of(address: str, scheme: str, name: str) -> str:
    """The URL or path of a published model that mmengine knows by name."""
    from mmengine.runner import checkpoint as published
    if scheme in ('torchvision', 'modelzoo'):
        models = published.get_torchvision_models()
    elif scheme == 'mmcls':
        models = published.get_mmcls_models()
    else:
        models = published.get_external_models()
        name = published.get_deprecated_model_names().get(name, name)
    if name not in models:
        raise UserError(f'checkpoint {address}: unknown model name {name!r}{did_you_mean(name, list(models))}')
    found = str(models[name])
    return found if is_url(found) else os.path.join(published._get_mmengine_home(), found)


def _read_stored(address: str) -> dict[str, Any]:
    from mmengine.fileio import get
    try:
        content = get(address)
    except Exception as error:  # each backend raises its own
        raise UserError(f'checkpoint {address} cannot be read ({type(error).__name__}: {one_line(error)})') from error
    suffix = ''.join(Path(urlparse(address).path).suffixes[-2:])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f'checkpoint{suffix}'
        file.write_bytes(content)
        try:
            return read_checkpoint(file)
        except UserError as error:
            raise UserError(str(error).replace(str(file), address)) from error
