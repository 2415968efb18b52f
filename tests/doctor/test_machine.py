"""Disks, shared memory, file limits and processors that are too small, full or not writable."""
import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from mmkcla.doctor import machine

Usage = namedtuple('Usage', 'total used free')
GIB = machine.GIB


@pytest.mark.parametrize(('total', 'free', 'level', 'text'), [
    (8 * GIB, 6 * GIB, 'ok', '6.00 of 8.00 GiB free'),
    (8 * GIB, GIB // 2, 'note', '0.50 of 8.00 GiB free'),
    (8 * GIB, GIB // 100, 'problem', '0.01 of 8.00 GiB free'),
    (8 * GIB, 0, 'problem', '0.00 of 8.00 GiB free'),
    (GIB // 16, GIB // 16, 'problem', '0.06 of 0.06 GiB free'),  # Docker's default
])
def test_shared_memory(tmp_path, monkeypatch, total, free, level, text):
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: Usage(total, total - free, free))
    found, = machine.shared_memory(tmp_path)
    full = 'shared memory is full: ' if level == 'problem' and total > GIB else ''
    assert (found.level, found.value) == (level, f'{full}{tmp_path}: {text}')
    assert (level == 'ok') == (not found.remedy)
    if total < GIB:
        assert '--shm-size=8g' in found.remedy
    elif level == 'problem':
        assert f'{tmp_path}/torch_*' in found.remedy


def test_no_shared_memory(tmp_path):
    assert list(machine.shared_memory(tmp_path / 'none')) == []


@pytest.mark.parametrize(('free', 'level'), [(0, 'problem'), (GIB - 1, 'problem'), (GIB, 'note'), (5 * GIB, 'ok')])
def test_disks(tmp_path, monkeypatch, free, level):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: Usage(100 * GIB, 100 * GIB - free, free))
    found = {one.check: one for one in machine.disks()}
    assert list(found) == ['current folder', 'temporary files', 'weights cache', 'data cache']
    assert {one.level for one in found.values()} == {level}
    assert found['weights cache'].value == f'{tmp_path}/torch/hub: {free / GIB:.1f} GiB free'
    if level == 'problem':
        assert 'set TORCH_HOME to a folder on another disk' in found['weights cache'].remedy
        assert '--work-dir' in found['current folder'].remedy


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'file' / 'torch'))
    (tmp_path / 'file').touch()
    before = machine.tempfile.TemporaryFile

    def read_only(dir: Path):
        if str(dir).startswith(str(tmp_path)):
            raise OSError(errno.EROFS, 'Read-only file system')
        return before(dir=dir)

    monkeypatch.setattr(machine.tempfile, 'TemporaryFile', read_only)
    found = {one.check: one for one in machine.disks()}['weights cache']
    assert found.level == 'problem' and found.remedy == 'set TORCH_HOME to another folder'
    assert found.value == f'cannot write to {tmp_path}/file: Read-only file system'


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    list(machine.disks())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(('limits', 'level', 'remedy'), [
    ((256, 4096), 'note', 'ulimit -n 4096'), ((256, -1), 'note', 'ulimit -n 4096'), ((1024, 4096), 'ok', ''),
    ((-1, -1), 'ok', '')])
def test_open_files(monkeypatch, limits, level, remedy):
    resource = pytest.importorskip('resource')
    monkeypatch.setattr(resource, 'getrlimit', lambda _: limits)
    found, = machine.open_files()
    assert (found.level, found.remedy) == (level, remedy)


@pytest.mark.parametrize(('usable', 'threads', 'level'), [
    (8, '', 'ok'), (8, '8', 'ok'), (8, '16', 'note'), (8, '1', 'note'), (2, '1', 'ok'), (1.5, '2', 'note'),
    (8, 'many', 'ok')])
def test_processors(monkeypatch, usable, threads, level):
    monkeypatch.setattr(machine, '_usable_processors', lambda: usable)
    monkeypatch.setattr(os, 'cpu_count', lambda: 16)
    monkeypatch.setenv('OMP_NUM_THREADS', threads)
    monkeypatch.delenv('MKL_NUM_THREADS', raising=False)
    found, = machine.processors()
    assert found.level == level and found.value.startswith(f'{usable} of 16 usable')


def test_memory(monkeypatch):
    for available, level in ((GIB, 'note'), (8 * GIB, 'ok')):
        monkeypatch.setattr(machine, '_available_memory', lambda available=available: available)
        found, = machine.memory()
        assert (found.level, found.value) == (level, f'{available / GIB:.1f} GiB available')
