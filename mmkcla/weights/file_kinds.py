"""Name files that are no checkpoints for what they are, and limit what an archive may unpack to."""
from __future__ import annotations

import struct
import tarfile
import zipfile
from pathlib import Path

from ..errors import UserError

_MAGIC = {
    b'GGUF': 'a GGUF file of llama.cpp', b'\x89HDF\r\n\x1a\n': 'an HDF5 file, as Keras writes it',
    b'\x93NUMPY': 'a NumPy array', b'\x1f\x8b': 'compressed with gzip', b'BZh': 'compressed with bzip2',
    b'\xfd7zXZ\0': 'compressed with xz', b'\x28\xb5\x2f\xfd': 'compressed with Zstandard',
    b"7z\xbc\xaf'\x1c": 'a 7-Zip archive', b'Rar!': 'a RAR archive', b'\x89PNG\r\n\x1a\n': 'a PNG image',
    b'\xff\xd8\xff': 'a JPEG image', b'%PDF': 'a PDF document', b'<?xml': 'an XML document',
    b'\x7fELF': 'a program', b'SQLite format 3\0': 'an SQLite database',
}
_TORCH_NUMBER = b'l\xfc\x9cF\xf9 j\xa8P\x19'  # the first object in files of torch.save before 1.6
_TENSORFLOW_INDEX = b'\x57\xfb\x80\x8b\x24\x75\x47\xdb'  # at the end of a table of LevelDB
_ONNX_FIELDS = (0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42)
_LARGEST_HEADER = 100_000_000  # limit of the safetensors library

MOST_RATIO = 100  # of unpacked to packed size; weights hardly compress
_SMALL = 64 * 2 ** 20  # bytes that any archive may unpack to


def other_kind(path: Path) -> str | None:
    """What a file is, if it is known to be no checkpoint of PyTorch, with a remedy where there is one.

    Archives are recognised by the names in them; nothing is unpacked.
    """
    with open(path, 'rb') as file:
        head = file.read(512)
        file.seek(-min(8, path.stat().st_size), 2)
        tail = file.read()
    if head[:4] == b'PK\3\4':
        return _archive_kind(path)
    if head[257:262] == b'ustar':
        return _tar_kind(path)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind + ('; unpack it first' if kind.startswith('compressed') or 'archive' in kind else '')
    if head[4:8] == b'TFL3':
        return 'a TensorFlow Lite model'
    if tail == _TENSORFLOW_INDEX:
        return 'the index of a TensorFlow checkpoint'
    if head[:3] == b'\x08\x01\x12' or path.suffix == '.pb':
        return 'a TensorFlow graph or SavedModel'
    if len(head) > 3 and head[0] == 8 and 2 < head[1] < 32 and head[2] in _ONNX_FIELDS or path.suffix == '.onnx':
        return 'an ONNX model, which holds a graph; use the checkpoint that it was exported from'
    if head[8:9] == b'{' and struct.unpack('<Q', head[:8])[0] < _LARGEST_HEADER:
        return None if path.suffix == '.safetensors' else 'a safetensors file; rename it to end with .safetensors'
    if head[:1] == b'\x80' and head[1:2] in b'\2\3\4\5' and _TORCH_NUMBER not in head[:32]:
        return 'a plain pickle and not written by torch.save; save its arrays as a state_dict of tensors'
    return None


def _archive_kind(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith('/')]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        return None  # damaged
    if any(name.endswith('.data/extern_modules') for name in names):
        return 'a package of torch.package, which contains code; save only the state_dict of its model'
    if any(name.endswith('/constants.pkl') for name in names):
        return ('a TorchScript archive, which contains code; save only its weights: '
                'torch.save(torch.jit.load(FILE).state_dict(), NEW)')
    if any(name.endswith(('serialized_exported_program.json', 'models/model.json')) for name in names):
        return 'a program of torch.export; save only the state_dict of its model'
    if 'model.weights.h5' in names:
        return 'a Keras model'
    if names and all(name.endswith('.npy') for name in names):
        return 'a NumPy archive (.npz); save its arrays as a state_dict of tensors'
    if not any(name.endswith('data.pkl') for name in names):
        inner = [name for name in names if name.endswith(('.pth', '.pt', '.safetensors', '.tar'))]
        return f'a zip archive{f" that contains {inner[0]}; unpack it first" if inner else " without a checkpoint"}'
    return None


def _tar_kind(path: Path) -> str:
    try:
        with tarfile.open(path, 'r:') as archive:
            names = [archive.next() for _ in range(8)]
    except (tarfile.TarError, OSError, ValueError):
        return 'a damaged tar archive'
    known = {member.name.rpartition('/')[2] for member in names if member}
    if {'sys_info', 'pickle'} & known and {'storages', 'tensors'} & known:
        return ('a tar archive of PyTorch before 0.1.10, which cannot be read without running code; load it with the '
                'program that wrote it, and save its state_dict again')
    return 'a tar archive; unpack it first'


def check_sizes(path: Path) -> None:
    """Check a zip archive before it is read: what it unpacks to, and that its entries do not overlap.

    ``torch.save`` does not compress. Compressed archives are accepted up to 64 MiB of content or 100 times their size.

    Raises:
        UserError: it is larger, or entries overlap.
    """
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        return  # damaged, see the checksum
    unpacked, packed = (sum(entry.file_size for entry in entries), sum(entry.compress_size for entry in entries))
    if packed > size:
        raise UserError(f'checkpoint {path} is refused: its entries overlap ({packed} bytes in a file of {size})')
    if unpacked > max(_SMALL, MOST_RATIO * size):
        raise UserError(f'checkpoint {path} is refused: it has {size} bytes and would unpack to {unpacked}, more than '
                        f'{MOST_RATIO} times as much')
    stored = [entry for entry in entries if entry.compress_type == zipfile.ZIP_STORED]
    if any(entry.file_size != entry.compress_size for entry in stored):
        raise UserError(f'checkpoint {path} is damaged: an uncompressed entry has two sizes')
