"""Checksums of checkpoints, stored in the file itself, so that they stay with a copy.

A file of ``torch.save`` is a zip archive. Ours end with an archive comment, which torch and zip programs ignore: the
SHA-256 of everything before the comment and its length. Files of other programs have a CRC-32 for each entry, which
torch does not check when it reads. Our ``.safetensors`` files have the SHA-256 of names, types, shapes and values in
their metadata.
"""
from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from ..errors import UserError

KEY = 'mmkcla_sha256'  # in the metadata of safetensors
_PREFIX = b'mmkcla-sha256:'
_LENGTH = len(_PREFIX) + 64
_COMMENT = re.compile(rb'(..)mmkcla-sha256:([0-9a-f]{64})', re.DOTALL)
_END = b'PK\5\6'
_PART = 1 << 22


def write_sealed(file: IO[bytes], content: bytes) -> None:
    """Write the content of a checkpoint with its checksum; anything but a zip archive without comment is unchanged."""
    if content[:2] != b'PK' or content[-22:-18] != _END or content[-2:] != b'\0\0':
        file.write(content)
        return
    body = memoryview(content)[:-2]
    file.write(body)
    file.write(_LENGTH.to_bytes(2, 'little') + _PREFIX + hashlib.sha256(body).hexdigest().encode())


def verify(path: Path) -> None:
    """Check the checksum of a zip archive: ours, else the CRC-32 of each entry. Archives without any are accepted.

    Raises:
        UserError: the content differs from what was written.
    """
    size = path.stat().st_size
    with open(path, 'rb') as file:
        file.seek(max(0, size - _LENGTH - 2))
        seal = _COMMENT.fullmatch(file.read())
        if seal:
            file.seek(0)
            digest, left = hashlib.sha256(), size - _LENGTH - 2
            while left > 0 and (part := file.read(min(_PART, left))):
                digest.update(part)
                left -= len(part)
            if digest.hexdigest().encode() != seal[2] or seal[1] != _LENGTH.to_bytes(2, 'little'):
                raise _damaged(path, 'its SHA-256 is not the one stored when it was written')
            return
    try:
        with zipfile.ZipFile(path) as archive:
            if all(entry.CRC == 0 for entry in archive.infolist()):  # torch.serialization.set_crc32_options(False)
                return
            wrong = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _damaged(path, str(error).split('\n')[0][:160] or type(error).__name__) from error
    if wrong:
        raise _damaged(path, f'the CRC-32 of its entry {wrong} is wrong')


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f'{name}\0{value.dtype}\0{tuple(value.shape)}\0'.encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b'')
    return digest.hexdigest()


def verify_digest(weights: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> None:
    """Check the weights of a ``.safetensors`` file against its metadata, if it has a checksum.

    Raises:
        UserError: they differ.
    """
    if KEY in metadata and metadata[KEY] != digest_of(weights):
        raise _damaged(path, 'its SHA-256 is not the one stored when it was written')


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f'checkpoint {path} is damaged: {reason}; copy or download it again, or use another one')
