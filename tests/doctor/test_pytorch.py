"""torch and torchvision that do not fit each other, and devices that cannot be used."""
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torchvision

from mmkcla.doctor import pytorch
from mmkcla.doctor.pytorch import check_torch, check_torchvision, nvidia_driver, other_builds, supported

GIB = 2 ** 30


def test_the_installed_ones_work():
    assert [(one.check, one.level) for one in (*check_torch(), *check_torchvision())] == [
        ('torch', 'ok'), ('torch and numpy', 'ok'), ('torchvision', 'ok')]


def test_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, 'torchvision', None)
    found, = check_torchvision()
    assert found.level == 'problem' and found.value == 'not installed'
    assert found.remedy.endswith(f'pip install torch=={torch.__version__.split("+")[0]} torchvision')
    monkeypatch.setitem(sys.modules, 'torch', None)
    found, = check_torch()
    assert (found.level, found.value) == ('problem', 'not installed')


def test_versions(monkeypatch):
    monkeypatch.setattr(torch, '__version__', '2.99.0')
    assert next(iter(check_torch())).value == 'torch 2.99.0 is newer than the newest tested version (2.14)'
    monkeypatch.setattr(torch, '__version__', '1.13.1')
    found = next(iter(check_torch()))
    assert found.level == 'note' and 'older than 2.1' in found.value


def test_torchvision_of_another_build(monkeypatch):
    monkeypatch.setattr(torchvision, '__version__', '0.20.0+cpu')
    monkeypatch.setattr(torch, '__version__', '2.5.0+cu124')
    found, = check_torchvision()
    assert found.level == 'problem' and 'builds' not in found.remedy
    assert found.value == '0.20.0+cpu and torch 2.5.0+cu124 are for different CUDA versions'


def test_torchvision_without_its_operators(monkeypatch):
    def broken(*_):
        raise RuntimeError('operator torchvision::nms does not exist')

    monkeypatch.setattr('torchvision.ops.nms', broken)
    found, = check_torchvision()
    assert found.level == 'problem' and found.value.endswith('operator torchvision::nms does not exist')


@pytest.mark.parametrize(('first', 'second', 'expected'), [
    ('0.29.1+cu130', '2.14.1+cu130', False), ('0.29.1', '2.14.1+cu130', False), ('1+cpu', '2+cu118', True),
    ('1+cu118', '2+cu121', True), ('1+gitabc', '2+cu121', False)])
def test_builds(first, second, expected):
    assert other_builds(first, second) is expected


@pytest.mark.parametrize(('capability', 'architectures', 'expected'), [
    ((8, 0), ['sm_70', 'sm_80'], True), ((8, 6), ['sm_80'], True), ((9, 0), ['sm_80'], False),
    ((9, 0), ['sm_80', 'compute_80'], True), ((6, 1), ['sm_70', 'sm_80', 'compute_80'], False),
    ((10, 0), ['sm_100', 'sm_120'], True), ((9, 0), ['sm_90a'], True), ((7, 5), [], True), ((9, 4), ['gfx942'], True)])
def test_kernels_for_a_device(capability, architectures, expected):
    assert supported(capability, architectures) is expected


@pytest.mark.parametrize(('text', 'expected'), [
    ('NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC', '535.129.03'),
    ('NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build', '550.54.14')])
def test_driver(tmp_path, text, expected):
    (tmp_path / 'version').write_text(text)
    assert nvidia_driver(tmp_path / 'version') == expected


def test_driver_of_nvidia_smi(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, 'run', lambda *_, **__: SimpleNamespace(stdout='580.10\n580.10\n'))
    assert nvidia_driver(tmp_path / 'none') == '580.10'

    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, 'run', missing)
    assert nvidia_driver(tmp_path / 'none') == ''


def fake_torch(build='12.4', available=False, capability=(8, 0), free=70, cudnn=True):
    cuda = SimpleNamespace(
        is_available=lambda: available, device_count=lambda: 1, get_arch_list=lambda: ['sm_80'],
        get_device_properties=lambda _: SimpleNamespace(name='A100', major=capability[0], minor=capability[1]),
        mem_get_info=lambda _: (free * GIB, 80 * GIB))
    backends = SimpleNamespace(cudnn=SimpleNamespace(is_available=lambda: cudnn, version=lambda: 90100))
    return SimpleNamespace(__version__='2.5.0', version=SimpleNamespace(cuda=build), cuda=cuda, backends=backends)


@pytest.mark.parametrize(('options', 'driver', 'visible', 'levels', 'text'), [
    (dict(build=None), '', None, ['ok'], 'models run on the CPU'),
    (dict(build=None), '550.1', None, ['problem'], 'NVIDIA driver 550.1, but torch 2.5.0 is a CPU build'),
    (dict(), '', None, ['ok'], 'no NVIDIA driver'),
    (dict(), '390.1', None, ['problem'], 'torch is built for 12.4, driver 390.1, but no GPU is available'),
    (dict(), '550.1', '', ['note'], "CUDA_VISIBLE_DEVICES='' hides all GPUs"),
    (dict(available=True), '550.1', None, ['ok', 'ok', 'ok'], 'compute capability 8.0, 70.0 of 80.0 GiB free'),
    (dict(available=True, cudnn=False), '550.1', None, ['ok', 'problem', 'ok'], 'not available'),
    (dict(available=True, capability=(9, 0)), '550.1', None, ['ok', 'ok', 'problem'], 'no kernels for it (sm_80)'),
    (dict(available=True, free=.5), '550.1', None, ['ok', 'ok', 'note'], '0.5 of 80.0 GiB free'),
])
def test_cuda(monkeypatch, options, driver, visible, levels, text):
    monkeypatch.setattr(pytorch, 'nvidia_driver', lambda: driver)
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    if visible is not None:
        monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
    found = list(pytorch._cuda(fake_torch(**options)))
    assert [one.level for one in found] == levels and any(text in one.value for one in found)
    assert all(one.remedy for one in found if one.level != 'ok')
