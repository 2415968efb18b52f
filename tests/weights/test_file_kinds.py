"""Files that are no checkpoints are named for what they are; archives that unpack to too much are refused unread."""
import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save
from torch import nn

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import UserError


def refusal(path):
    with pytest.raises(UserError) as error:
        read_checkpoint(path)
    message = str(error.value)
    assert '\n' not in message and message.startswith(f'checkpoint {path}')
    return message.removeprefix(f'checkpoint {path} ')


def _tar(names):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode='w') as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


def _zip(names, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', **options) as archive:
        for name in names:
            archive.writestr(name, b'x' * 20)
    return buffer.getvalue()


def _written(write):
    write(buffer := io.BytesIO())
    return buffer.getvalue()


FILES = {
    'gguf': (lambda: b'GGUF\x03\0\0\0' + bytes(40), 'is a GGUF file of llama.cpp'),
    'hdf5': (lambda: b'\x89HDF\r\n\x1a\n' + bytes(40), 'is an HDF5 file, as Keras writes it'),
    'npy': (lambda: _written(lambda file: np.save(file, np.ones(3))), 'is a NumPy array'),
    'npz': (lambda: _written(lambda file: np.savez(file, a=np.ones(3))), 'is a NumPy archive (.npz); save its arrays'),
    'gzip': (lambda: gzip.compress(b'x' * 50), 'is compressed with gzip; unpack it first'),
    'xz': (lambda: b'\xfd7zXZ\0' + bytes(20), 'is compressed with xz; unpack it first'),
    'png': (lambda: _written(lambda file: Image.new('L', (4, 4)).save(file, 'PNG')), 'is a PNG image'),
    'tflite': (lambda: b'\x1c\0\0\0TFL3' + bytes(40), 'is a TensorFlow Lite model'),
    'tensorflow index': (lambda: b'\0' * 60 + b'\x57\xfb\x80\x8b\x24\x75\x47\xdb', 'is the index of a TensorFlow'),
    'saved model': (lambda: b'\x08\x01\x12\x10' + bytes(40), 'is a TensorFlow graph or SavedModel'),
    'tar': (lambda: _tar(['a/b.txt']), 'is a tar archive; unpack it first'),
    'legacy tar': (lambda: _tar(['sys_info', 'pickle', 'storages', 'tensors']), 'is a tar archive of PyTorch before'),
    'plain pickle': (lambda: pickle.dumps(dict(a=[1, 2])), 'is a plain pickle and not written by torch.save'),
    'numpy pickle': (lambda: pickle.dumps(dict(model=np.ones(3))), 'is a plain pickle and not written by torch.save'),
    'safetensors': (lambda: save(dict(a=torch.ones(3))), 'is a safetensors file; rename it to end with .safetensors'),
    'zip': (lambda: _zip(['notes.txt']), 'is a zip archive without a checkpoint'),
    'zipped checkpoint': (lambda: _zip(['run/epoch_1.pth']), 'is a zip archive that contains run/epoch_1.pth'),
    'keras': (lambda: _zip(['config.json', 'model.weights.h5']), 'is a Keras model'),
}


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('kind', FILES)
def test_named(tmp_path, kind):
    make, message = FILES[kind]
    (path := tmp_path / 'a.pth').write_bytes(make())
    assert refusal(path).startswith(message)


def test_onnx(tmp_path):
    onnx = pytest.importorskip('onnx')
    value = onnx.helper.make_tensor_value_info('x', onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node('Relu', ['x'], ['y'])], 'g', [value],
                                   [onnx.helper.make_tensor_value_info('y', onnx.TensorProto.FLOAT, [1])])
    onnx.save(onnx.helper.make_model(graph, producer_name='test'), path := tmp_path / 'a.pth')
    assert refusal(path).startswith('is an ONNX model, which holds a graph')


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_programs_of_torch(tmp_path):
    model, example = nn.Linear(2, 2), torch.ones(1, 2)
    torch.jit.save(torch.jit.trace(model, example), path := tmp_path / 'a.pth')
    assert refusal(path).startswith('is a TorchScript archive, which contains code; save only its weights')
    with torch.package.PackageExporter(path) as package:
        package.save_text('notes', 'a.txt', 'x')
    assert refusal(path).startswith('is a package of torch.package, which contains code')
    torch.export.save(torch.export.export(model, (example, )), path := tmp_path / 'a.pt2')
    assert refusal(path).startswith('is a program of torch.export; save only the state_dict')


TENSORS = {
    'sparse_coo': (lambda: torch.eye(3).to_sparse(), 'a sparse tensor (sparse_coo); save its to_dense()'),
    'sparse_csr': (lambda: torch.eye(3).to_sparse_csr(), 'a sparse tensor (sparse_csr); save its to_dense()'),
    'meta': (lambda: torch.empty(3, device='meta'), 'a meta tensor, without values'),
    'nested': (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), 'a nested tensor'),
    'quantized': (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), 'a quantized tensor'),
    'expanded': (lambda: torch.ones(1).expand(2 ** 31), 'of shape (2147483648,), but the file has only 4 bytes of it'),
}


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('kind', TENSORS)
def test_tensors(tmp_path, kind, zipped):
    make, message = TENSORS[kind]
    if kind == 'nested' and not zipped:
        pytest.skip('torch itself does not read what it wrote')
    torch.save(dict(state_dict={'a': torch.ones(2), 'b.weight': make()}), path := tmp_path / 'a.pth',
               _use_new_zipfile_serialization=zipped)
    line = refusal_of_tensor(path)
    assert line.startswith(f'state_dict.b.weight is {message}') or 'contains more than weights' in line


def refusal_of_tensor(path):
    with pytest.raises(UserError) as error:
        read_checkpoint(path)
    assert '\n' not in str(error.value)
    return str(error.value).removeprefix(f'checkpoint {path}: ')


class Labelled(torch.Tensor):
    """A subclass of Tensor."""


def test_subclass(tmp_path):
    torch.save(dict(a=torch.ones(2).as_subclass(Labelled)), path := tmp_path / 'a.pth')
    assert 'Labelled' in refusal_of_tensor(path)


def test_parameters_and_views_are_accepted(tmp_path):
    weights = dict(a=nn.Parameter(torch.ones(2)), b=torch.ones(4)[1:3], c=torch.ones(1).expand(5),
                   d=torch.ones(2, 3).t())
    torch.save(weights, path := tmp_path / 'a.pth')
    read = read_checkpoint(path)
    assert all(torch.equal(read[name], value) for name, value in weights.items())


def test_circular_containers_end(tmp_path):
    content = dict(state_dict=dict(a=torch.ones(2)))
    content['self'] = [content]
    torch.save(content, path := tmp_path / 'a.pth')
    assert torch.equal(read_checkpoint(path)['state_dict']['a'], torch.ones(2))


def _packed(path, target, **options):
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, 'w', zipfile.ZIP_DEFLATED, **options) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    return target


def test_compressed_checkpoints_have_limits(tmp_path):
    torch.save(dict(a=torch.arange(100.)), tmp_path / 'a.pth')
    assert torch.equal(read_checkpoint(_packed(tmp_path / 'a.pth', tmp_path / 'b.pth'))['a'], torch.arange(100.))
    torch.save(dict(a=torch.zeros(20 * 2 ** 20)), tmp_path / 'c.pth')
    line = refusal(_packed(tmp_path / 'c.pth', tmp_path / 'd.pth'))
    assert line.startswith('is refused: it has ') and line.endswith('more than 100 times as much')
    torch.save(dict(a=torch.zeros(20 * 2 ** 20)), tmp_path / 'e.pth')
    assert len(read_checkpoint(tmp_path / 'e.pth')['a']) == 20 * 2 ** 20  # not compressed


def test_overlapping_entries(tmp_path):
    """All entries of the directory point at the largest one."""
    torch.save(dict(a=torch.ones(50000)), path := tmp_path / 'a.pth')
    data = bytearray(path.read_bytes())
    places, start = [], data.find(b'PK\1\2')
    while start >= 0:
        places.append(start)
        start = data.find(b'PK\1\2', start + 4)
    largest = max(places, key=lambda place: struct.unpack_from('<I', data, place + 20)[0])
    for place in places:
        data[place + 16:place + 28] = data[largest + 16:largest + 28]
        data[place + 42:place + 46] = data[largest + 42:largest + 46]
    path.write_bytes(data)
    assert 'its entries overlap' in refusal(path)


@pytest.mark.parametrize('header', [
    b'{', json.dumps(dict(a=dict(dtype='F32', shape=[4], data_offsets=[0, 99]))).encode(),
    json.dumps(dict(a=dict(dtype='F32', shape=[-1], data_offsets=[0, 16]))).encode(),
    json.dumps(dict(a=dict(dtype='F32', shape=[2 ** 62, 4], data_offsets=[0, 16]))).encode(),
    json.dumps(dict(a=dict(dtype='F99', shape=[4], data_offsets=[0, 16]))).encode(),
    json.dumps(dict(a=dict(dtype='F32', shape=[4], data_offsets=[16, 0]))).encode(),
    b'[1]', b'{"a":' * 5000 + b'1' + b'}' * 5000, b'\xff\xfe'])
def test_safetensors_headers(tmp_path, header):
    (path := tmp_path / 'a.safetensors').write_bytes(struct.pack('<Q', len(header)) + header + bytes(16))
    assert refusal(path).startswith('is truncated or not a safetensors file (')


@pytest.mark.parametrize('length', [0, 2 ** 40, 2 ** 64 - 1])
def test_safetensors_header_lengths(tmp_path, length):
    (path := tmp_path / 'a.safetensors').write_bytes(struct.pack('<Q', length) + b'{}' + bytes(16))
    assert refusal(path).startswith('is truncated or not a safetensors file (')
