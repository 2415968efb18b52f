"""Where the file behind an address comes from: every scheme ends in the safe reader, and the right file is read."""
import hashlib
import os
import shutil
import urllib.error

import pytest
import torch
from mmengine.runner import CheckpointLoader
from mmengine.runner.checkpoint import get_deprecated_model_names, get_external_models, get_mmcls_models

from mmkcla.checkpoint import fetch_state_dict, read_address
from mmkcla.errors import UserError
from mmkcla.weights.addresses import download
from mmkcla.weights.safe_loading import load_safely


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), 'w')


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A web server in a dict: address to bytes, with torch's cache in the temporary folder."""
    content, fetched = {}, []

    def download_url_to_file(url, dst, hash_prefix=None, progress=True):
        if url not in content:
            raise urllib.error.URLError('no route')
        fetched.append(url)
        digest = hashlib.sha256(content[url]).hexdigest()
        if hash_prefix and not digest.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest}")')
        with open(dst, 'wb') as file:
            file.write(content[url])

    monkeypatch.setattr(torch.hub, 'download_url_to_file', download_url_to_file)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'hub'))
    monkeypatch.setenv('MMENGINE_HOME', str(tmp_path / 'home'))
    return content, fetched


@pytest.fixture
def content(tmp_path):
    """The bytes of a checkpoint whose only weight has the given value."""
    def make(value):
        path = tmp_path / 'made.pth'
        torch.save({'state_dict': {'backbone.weight': torch.full((2,), float(value))}}, path)
        return path.read_bytes()
    return make


def value_of(address):
    return next(iter(read_address(address)['state_dict'].values()))[0].item()


def test_addresses_with_one_file_name_are_two_files(web, content):
    pages, fetched = web
    pages['https://a.org/one/net.pth'], pages['https://a.org/two/net.pth'] = content(1), content(2)
    pages['https://a.org/one/net.pth?token=x'] = content(3)
    for _ in range(2):
        assert [value_of(address) for address in pages] == [1, 2, 3]
    assert len(fetched) == 3  # each once


def test_hash_in_the_name_is_verified(web, content):
    pages, _ = web
    good = content(1)
    name = f'net-{hashlib.sha256(good).hexdigest()[:8]}.pth'
    pages[f'https://a.org/{name}'] = content(2)
    with pytest.raises(UserError, match=f'https://a.org/{name} does not have the hash .* in its name'):
        read_address(f'https://a.org/{name}')
    pages[f'https://a.org/{name}'] = good
    assert value_of(f'https://a.org/{name}') == 1


def test_file_of_another_program_is_used_if_its_hash_fits(web, content, tmp_path):
    pages, fetched = web
    good, bad = content(1), content(2)
    name = f'net-{hashlib.sha256(good).hexdigest()[:8]}.pth'
    cache = tmp_path / 'hub' / 'checkpoints'
    cache.mkdir(parents=True)
    (cache / name).write_bytes(good)
    assert value_of(f'https://a.org/{name}') == 1 and not fetched
    (cache / name).write_bytes(bad)
    pages[f'https://a.org/{name}'] = good
    assert value_of(f'https://a.org/{name}') == 1 and fetched


@pytest.mark.parametrize('address', [
    'torchvision://resnet18', 'modelzoo://resnet18', 'open-mmlab://vgg16_caffe', 'openmmlab://vgg16_caffe',
    'mmcls://vgg11', 'https://a.org/net.pth', 'http://a.org/net.pth',
])
def test_every_scheme_refuses_code(web, tmp_path, monkeypatch, address):
    marker, path = tmp_path / 'marker', tmp_path / 'evil.pth'
    torch.save({'state_dict': Payload(marker)}, path)
    monkeypatch.setattr(torch.hub, 'download_url_to_file',
                        lambda url, dst, **_: shutil.copy(path, dst))
    load_safely()
    for load in (read_address, fetch_state_dict, CheckpointLoader.load_checkpoint):
        with pytest.raises(UserError, match='it is refused, since loading it could run code'):
            load(address)
    assert not marker.exists()


def test_every_scheme_of_mmengine_ends_in_the_safe_reader():
    load_safely()
    assert len(CheckpointLoader._schemes) > 8
    assert {loader.__name__ for loader in CheckpointLoader._schemes.values()} == {'load_from_mmkcla'}


def test_names_become_the_addresses_of_mmengine(web, content):
    pages, _ = web
    external = get_external_models()
    old, new = next(iter(get_deprecated_model_names().items()))
    addresses = {'open-mmlab://vgg16_caffe': external['vgg16_caffe'], f'open-mmlab://{old}': external[new],
                 'mmcls://vgg11': get_mmcls_models()['vgg11']}
    for number, url in enumerate(addresses.values()):  # without the hash in the name, which the content cannot have
        pages[url] = content(number)
    for address, url in addresses.items():
        with pytest.raises(UserError, match='does not have the hash') as error:
            download(address)
        assert url in str(error.value)


def test_classifier_weights_lose_their_prefix(web, content, monkeypatch):
    pages, _ = web
    pages['https://a.org/vgg.pth'] = content(4)
    monkeypatch.setattr('mmengine.runner.checkpoint.get_mmcls_models', lambda: {'vgg11': 'https://a.org/vgg.pth'})
    assert list(read_address('mmcls://vgg11')['state_dict']) == ['weight']


def test_models_stored_in_the_home_of_mmengine(web, content, tmp_path, monkeypatch):
    monkeypatch.setattr('mmengine.runner.checkpoint.get_external_models', lambda: {'own': 'own/net.pth'})
    os.makedirs(tmp_path / 'home' / 'own')
    (tmp_path / 'home' / 'own' / 'net.pth').write_bytes(content(5))
    assert value_of('open-mmlab://own') == 5


@pytest.mark.parametrize(('address', 'message'), [
    ('torchvision://resnet5', r"unknown model name 'resnet5' .did you mean 'resnet50'"),
    ('ftp://a.org/net.pth', 'checkpoint ftp://a.org/net.pth: unknown scheme; use a path or one of http://'),
    ('pavi://net', 'unknown scheme'), ('file:///net.pth', 'unknown scheme'), ('hf-hub://a/b', 'unknown scheme'),
    ('s3://bucket/net.pth', 'checkpoint s3://bucket/net.pth cannot be read'),
    ('cluster:s3://bucket/net.pth', 'cannot be read'), ('petrel://bucket/net.pth', 'cannot be read'),
])
def test_one_line_for_what_is_not_known(web, address, message):
    with pytest.raises(UserError, match=message) as error:
        read_address(address)
    assert '\n' not in str(error.value)


def test_no_network(web):
    with pytest.raises(UserError, match='https://far/net.pth cannot be downloaded .*no route.*use the path of a local'):
        fetch_state_dict('https://far/net.pth')
