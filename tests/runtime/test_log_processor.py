"""Throughput and memory in the log of a training, and the line about a slow data loader."""
import json
import re
from types import SimpleNamespace

import pytest
from seed_machine import TINY, write_pairs

from mmkcla.cli import main
from mmkcla.runtime import log_processor
from mmkcla.runtime.log_processor import SpeedLogProcessor, images_per_iteration, process_memory, slow_loader_line


def test_lines_of_a_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'speed.py').write_text(TINY.replace('{root}', str(write_pairs(tmp_path / 'data'))))
    assert main(['train', 'speed.py', '--work-dir', 'w']) == 0
    scalars = next((tmp_path / 'w').glob('*/vis_data/scalars.json'))
    rows = [json.loads(line) for line in scalars.read_text().splitlines()]
    rows = [row for row in rows if 'images/s' in row]
    assert len(rows) == 2
    for row in rows:
        assert row['images/s'] == pytest.approx(2 / row['time']) and 50 < row['memory'] < 20_000
    lines = [line for line in next((tmp_path / 'w').glob('*/*.log')).read_text().splitlines() if 'Iter(train)' in line]
    assert len(lines) == 2 and all(re.search(r'data_time: [\d.]+  images/s: [\d.]+  memory: \d+  loss: ', line)
                                   for line in lines)
    assert 'images/s' not in (tmp_path / 'w' / 'curves.csv').read_text()
    assert "type='mmkcla.LogProcessor'" in (tmp_path / 'w' / 'speed.py').read_text()


def test_a_slow_loader_is_named_once(monkeypatch, capsys):
    monkeypatch.setattr(log_processor.os, 'cpu_count', lambda: 8)
    runner = SimpleNamespace(iter=100, train_dataloader=SimpleNamespace(num_workers=2))
    processor = SpeedLogProcessor()
    for iteration, waiting in ((100, 0.9), (115, 0.9), (120, 0.39), (130, 0.41), (140, 0.9)):  # resumed at 100
        runner.iter = iteration
        processor._name_slow_loader(runner, {'time': 1.0, 'data_time': waiting})
    said = capsys.readouterr().err.splitlines()
    assert said == ['note: ' + slow_loader_line(0.41, 1.0, 2)]
    assert said[0] == ('note: waiting for data takes 41 % of the time of an iteration (0.410 of 1.000 s); raise '
                       'train_dataloader.num_workers (now 2; this machine has 8 cores)')
    assert 'all 8 cores are in use' in slow_loader_line(0.5, 1.0, 8)


def test_images_of_an_iteration(monkeypatch):
    loader = SimpleNamespace(batch_size=3, batch_sampler=None)
    assert images_per_iteration(loader) == 3
    assert images_per_iteration(SimpleNamespace(batch_size=None, batch_sampler=SimpleNamespace(batch_size=5))) == 5
    assert images_per_iteration(SimpleNamespace(batch_size=None)) is None
    monkeypatch.setattr(log_processor, 'get_world_size', lambda: 4)
    assert images_per_iteration(loader) == 12
    assert process_memory() > 50
