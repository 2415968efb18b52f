"""Checksums: stored with the checkpoint, kept by copies, and a changed byte anywhere is refused or without effect."""
import io
import shutil
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import UserError
from mmkcla.runtime.hooks.checkpoint import WholeFileBackend
from mmkcla.weights.checksum import write_sealed
from mmkcla.weights.convert.write import write_weights


def content():
    generator = torch.Generator().manual_seed(0)
    weights = {f'layer{number}.weight': torch.randn(8, 8, generator=generator) for number in range(6)}
    return dict(state_dict=weights, meta=dict(epoch=3, note='x' * 40), optimizer=dict(state={}, param_groups=[]))


def saved(sealed):
    torch.save(content(), buffer := io.BytesIO())
    if not sealed:
        return buffer.getvalue()
    write_sealed(file := io.BytesIO(), buffer.getvalue())
    return file.getvalue()


def equal(one, other):
    return (list(one['state_dict']) == list(other['state_dict']) and one['meta'] == other['meta'] and all(
        torch.equal(value, other['state_dict'][name]) for name, value in one['state_dict'].items()))


def positions(data, count):
    """Evenly spread over the file, and one in each part of its structure."""
    found = set(np.linspace(0, len(data) - 1, count).astype(int).tolist())
    for mark in (b'PK\x03\x04', b'PK\x01\x02', b'PK\x05\x06', b'mmkcla-sha256', b'layer0', b'epoch'):
        place = data.find(mark)
        found |= {place, place + 5, place + 14, place + 20} if place >= 0 else set()
    return sorted(position for position in found if position < len(data))


def read_or_refused(path):
    """The content of a checkpoint; None if it is refused, in one line."""
    try:
        return read_checkpoint(path)
    except UserError as error:
        assert '\n' not in str(error)
        return None


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('flip', [1, 0x40, 0xff])
@pytest.mark.parametrize('sealed', [True, False])
def test_flipped_byte(tmp_path, sealed, flip):
    data, path, refused = saved(sealed), tmp_path / 'a.pth', 0
    places = positions(data, 60)
    for position in places:
        damaged = bytearray(data)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        read = read_or_refused(path)
        refused += read is None
        assert read is None or equal(read, content()), position
    assert refused > len(places) * (0.9 if sealed else 0.5)


def test_sealed_files_are_refused_by_the_checksum(tmp_path):
    data = bytearray(saved(True))
    data[len(data) // 2] ^= 1
    (path := tmp_path / 'a.pth').write_bytes(data)
    with pytest.raises(UserError, match='a.pth is damaged: its SHA-256 is not the one stored when it was written'):
        read_checkpoint(path)


def test_files_of_others_are_refused_by_their_crc(tmp_path):
    data = saved(False)
    place = data.find(content()['state_dict']['layer2.weight'].numpy().tobytes())
    damaged = bytearray(data)
    damaged[place + 9] ^= 1
    (path := tmp_path / 'a.pth').write_bytes(damaged)
    torch.load(path, weights_only=True)  # torch does not notice
    with pytest.raises(UserError, match='a.pth is damaged: the CRC-32 of its entry .*data/2 is wrong'):
        read_checkpoint(path)


def test_sealed_files_load_with_torch_and_zip_programs(tmp_path):
    path = tmp_path / 'a.pth'
    WholeFileBackend().put(saved(False), path)
    assert path.read_bytes() == saved(True)
    for options in ({}, dict(mmap=True)):
        assert equal(torch.load(path, weights_only=True, **options), content())
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and archive.comment.startswith(b'mmkcla-sha256:')
    shutil.copy(path, tmp_path / 'b.pth')
    assert equal(read_checkpoint(tmp_path / 'b.pth'), content())


def test_other_content_is_not_changed():
    for data in (b'', b'text', b'PK', b'PK\x03\x04 not a zip', saved(True)):
        write_sealed(file := io.BytesIO(), data)
        assert file.getvalue() == data


def test_files_without_crc_are_accepted(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(content(), path := tmp_path / 'a.pth')
    finally:
        torch.serialization.set_crc32_options(True)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is not None
    assert equal(read_checkpoint(path), content())


@pytest.mark.parametrize('name', ['a.pth', 'a.safetensors'])
def test_converted_files(tmp_path, name):
    path, weights = tmp_path / name, content()['state_dict']
    write_weights(path, weights, dict(note='x'))
    assert read_checkpoint(path)['state_dict'].keys() == weights.keys()
    data = path.read_bytes()
    place = data.find(weights['layer3.weight'].numpy().tobytes())
    path.write_bytes(data[:place + 2] + bytes([data[place + 2] ^ 4]) + data[place + 3:])
    with pytest.raises(UserError, match=f'{name} is damaged: its SHA-256'):
        read_checkpoint(path)


def test_safetensors_of_others(tmp_path):
    save_file(content()['state_dict'], path := tmp_path / 'a.safetensors')
    assert read_checkpoint(path)['state_dict'].keys() == load_file(path).keys()


@pytest.mark.parametrize('flip', [1, 0xff])
def test_flipped_byte_of_safetensors(tmp_path, flip):
    write_weights(path := tmp_path / 'a.safetensors', content()['state_dict'], {})
    data = path.read_bytes()
    for position in np.linspace(0, len(data) - 1, 80).astype(int):
        damaged = bytearray(data)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        read = read_or_refused(path)
        assert read is None or (
            equal({**read, 'meta': 0}, {**content(), 'meta': 0}) or b'mmkcla_sha256' not in bytes(damaged))
