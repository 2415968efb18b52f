"""Files that create a marker file if code in them runs."""
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch


class Payload:
    """An object whose pickle opens ``marker`` for writing when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), 'w')


class Setter(Payload):
    """The same through ``__setstate__`` of an allowed class: the state is built by code."""

    def __reduce__(self):
        return dict, (), None, None, iter([('state_dict', Payload(self.marker))])


def _pickled(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps({'state_dict': Payload(marker)}))


def _old_protocol(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps({'state_dict': Payload(marker)}, protocol=0))


def _saved(path: Path, marker: Path) -> None:
    torch.save({'state_dict': Payload(marker)}, path)


def _legacy(path: Path, marker: Path) -> None:
    torch.save({'state_dict': Payload(marker)}, path, _use_new_zipfile_serialization=False)


def _nested(path: Path, marker: Path) -> None:
    torch.save({'state_dict': {'w': torch.ones(1)}, 'meta': {'cfg': [Setter(marker)]}}, path)


def _tar(path: Path, marker: Path) -> None:
    content = pickle.dumps(Payload(marker))
    with tarfile.open(path, 'w') as archive:
        for name in ('pickle', 'storages', 'tensors'):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _package(path: Path, marker: Path) -> None:
    """A torch.package: a zip with Python modules and pickles."""
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('archive/.data/version', '6')
        archive.writestr('archive/.data/extern_modules', 'builtins\n')
        archive.writestr('archive/model/data.pkl', pickle.dumps(Payload(marker)))
        archive.writestr('archive/data.pkl', pickle.dumps(Payload(marker)))


def _object_array(path: Path, marker: Path) -> None:
    with open(path, 'wb') as file:
        np.save(file, np.array([Payload(marker)], dtype=object), allow_pickle=True)


def _object_arrays(path: Path, marker: Path) -> None:
    with open(path, 'wb') as file:
        np.savez(file, arr=np.array([Payload(marker)], dtype=object))


def _yaml(path: Path, marker: Path) -> None:
    path.write_text(f"state_dict: !!python/object/apply:builtins.open ['{marker}', 'w']\n")


def _yaml_new(path: Path, marker: Path) -> None:
    path.write_text(f"- !!python/object/new:builtins.eval [\"open('{marker}', 'w')\"]\n")


def _json(path: Path, marker: Path) -> None:
    path.write_text(f'{{"__import__(\'builtins\').open(\'{marker}\', \'w\')": ["!!python/name:eval"]}}')


def _python(path: Path, marker: Path) -> None:
    path.write_text(f"open({str(marker)!r}, 'w')\n")


CHECKPOINTS: dict[str, Callable[[Path, Path], None]] = {
    'saved.pth': _saved, 'saved.pt': _saved, 'saved.pth.tar': _saved, 'legacy.pth': _legacy, 'nested.pth': _nested,
    'pickle.pth': _pickled, 'pickle.pkl': _pickled, 'protocol0.pth': _old_protocol, 'pickle.safetensors': _pickled,
    'tar.pth': _tar, 'package.pt': _package, 'array.pth': _object_array, 'python.pth': _python, 'yaml.pth': _yaml,
}
DATA: dict[str, Callable[[Path, Path], None]] = {
    'pickle.pkl': _pickled, 'pickle.pickle': _pickled, 'pickle.p': _pickled, 'pickle.json': _pickled,
    'pickle.npy': _pickled, 'pickle.np': _pickled, 'pickle.yaml': _pickled, 'pickle.txt': _pickled,
    'pickle.csv': _pickled, 'pickle.png': _pickled, 'pickle.mat': _pickled, 'protocol0.pkl': _old_protocol,
    'array.npy': _object_array, 'array.npz': _object_arrays, 'array.np': _object_array, 'saved.pth': _saved,
    'tags.yaml': _yaml, 'tags.yml': _yaml_new, 'tags.json': _json, 'python.json': _python, 'python.txt': _python,
    'python.py': _python,
}


def write_hostile(folder: Path, kinds: dict[str, Callable[[Path, Path], None]], marker: Path) -> list[Path]:
    """Write the files of ``kinds`` to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in kinds.items():
        write(folder / name, marker)
    return [folder / name for name in kinds]
