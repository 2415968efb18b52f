"""Signals stop a training after the step, with a checkpoint; elsewhere they end the command with one line."""
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from slow_training import children, start, stop, wait_for, write_training

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.runtime.hooks.checkpoint import AtomicCheckpointHook, remove_interrupted

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]


def saved(folder):
    """The checkpoint that a resumed training would start from."""
    path = Path((folder / 'last_checkpoint').read_text())
    return path.name, read_checkpoint(path)


@pytest.mark.parametrize('number', SIGNALS)
def test_a_signal_in_a_step(tmp_path, number):
    write_training(tmp_path)
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w')
    wait_for(process, 'rank 0: loss', 6)
    code, lines = stop(process, number)
    assert code == 128 + number
    assert 'Traceback' not in '\n'.join(lines)
    assert lines[0] == f'{number.name}: stopping after this step; a second signal stops at once'
    name, checkpoint = saved(tmp_path / 'w')
    done = checkpoint['meta']['iter']
    assert 5 <= done <= 7 and checkpoint['meta']['epoch'] == 1 and name == f'iter_{done}.pth'
    assert lines[-1] == (f'interrupted by {number.name}; iteration {done}, checkpoint {tmp_path}/w/{name}; to resume, '
                         'run the same command with --resume')


def test_all_processes_of_a_step_get_the_signal(tmp_path):
    """As slurm sends it: the data-loader workers must not end before the training has finished its step."""
    write_training(tmp_path, workers=2)
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w')
    wait_for(process, 'rank 0: loss', 3)
    for worker in children(process):
        os.kill(worker, signal.SIGTERM)
    code, lines = stop(process, signal.SIGTERM)
    assert code == 143 and lines[-1].startswith('interrupted by SIGTERM; iteration ')


def test_a_second_signal_stops_at_once(tmp_path):
    write_training(tmp_path, seconds=30)
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w')
    wait_for(process, 'rank 0: loss')
    process.send_signal(signal.SIGTERM)
    wait_for(process, 'stopping after this step')
    begun = time.monotonic()
    code, lines = stop(process, signal.SIGINT)
    assert code == 130 and lines == ['SIGINT: stopped at once'] and time.monotonic() - begun < 10


@pytest.mark.parametrize('number', SIGNALS)
def test_a_signal_while_loading(tmp_path, number):
    """Also in the loading before the first step: nothing would be lost."""
    write_training(tmp_path)
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w')
    wait_for(process, 'mmcv has no compiled operators')
    code, lines = stop(process, number)
    assert (code, lines[-1]) == (128 + number, f'interrupted by {number.name}')
    assert 'Traceback' not in '\n'.join(lines)


def test_a_signal_in_a_test(tmp_path):
    write_training(tmp_path, by_epoch=False, length=1)
    assert start(tmp_path, 'train', 'slow.py', '--work-dir', 'w').wait(60) == 0
    process = start(tmp_path, 'test', 'slow.py', 'w/iter_1.pth', '--work-dir', 't', SLOW_LOADING='30')
    wait_for(process, 'loading')
    code, lines = stop(process, signal.SIGTERM)
    assert (code, lines[-1]) == (143, 'interrupted by SIGTERM') and 'Traceback' not in '\n'.join(lines)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A training in this process, that gets a signal in its n-th call of the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [*sys.path])  # a command adds the folder of its config

    def run(at, *options, **settings):
        write_training(tmp_path, seconds=0, **settings)
        sys.modules.pop('slow_parts', None)  # of another folder
        calls, original = [], time.sleep

        def sleep(seconds):
            calls.append(seconds)
            if len(calls) == at:
                os.kill(os.getpid(), signal.SIGTERM)
            original(seconds)
        with monkeypatch.context() as patch:
            patch.setattr(time, 'sleep', sleep)
            return main(['train', 'slow.py', '--work-dir', 'w', *options])
    yield run
    sys.modules.pop('slow_parts', None)


@pytest.mark.parametrize(('settings', 'at', 'name', 'epoch', 'iteration'), [
    (dict(by_epoch=True, length=3), 4, 'epoch_1.pth', 1, 4),  # the last step of an epoch
    (dict(by_epoch=True, length=3), 6, 'iter_6.pth', 1, 6),
    (dict(by_epoch=True, length=3, val=1), 4, 'epoch_1.pth', 1, 4),  # finishes the validation
    (dict(by_epoch=True, length=3, val=1), 6, 'epoch_1.pth', 1, 4),  # in the validation
    (dict(by_epoch=False, length=9, interval=4), 6, 'iter_6.pth', 0, 6),
    (dict(by_epoch=False, length=9, interval=4, val=2), 4, 'iter_2.pth', 0, 2),  # in the validation
    (dict(by_epoch=False, length=9, interval=4, counts=4), 6, 'iter_8.pth', 0, 8),  # no gradients are lost
])
def test_where_it_stops(here, tmp_path, settings, at, name, epoch, iteration):
    assert here(at, **settings) == 143
    found, checkpoint = saved(tmp_path / 'w')
    assert (found, checkpoint['meta']['epoch'], checkpoint['meta']['iter']) == (name, epoch, iteration)
    if settings.get('val'):  # the validation is in the checkpoint, and is not repeated
        assert 'val/toy/error' in (tmp_path / 'w/curves.csv').read_text()
    assert main(['train', 'slow.py', '--work-dir', 'w', '--resume']) == 0


def test_the_last_checkpoint_of_an_interruption_is_replaced(here, tmp_path):
    assert here(2, length=5, interval=9) == 143
    assert here(3, '--resume', length=5, interval=9) == 143
    assert [path.name for path in (tmp_path / 'w').glob('iter_*.pth')] == ['iter_5.pth']


@pytest.mark.parametrize(('kept', 'names'), [(-1, ['epoch_1.pth', 'epoch_2.pth', 'iter_2.pth']), (1, ['epoch_2.pth'])])
def test_the_next_checkpoint_replaces_that_of_an_interruption(here, tmp_path, kept, names):
    """It counts for max_keep_ckpts, and a name from a file deletes nothing else."""
    options = ['--cfg-options', f'default_hooks.checkpoint.max_keep_ckpts={kept}', 'train_cfg.max_epochs=2']
    assert here(2, *options, length=4) == 143
    assert main(['train', 'slow.py', '--work-dir', 'w', '--resume', *options]) == 0
    assert sorted(path.name for path in (tmp_path / 'w').glob('*.pth')) == names
    hook = AtomicCheckpointHook(out_dir=str(tmp_path / 'w'))
    for name in ('slow.py', '../slow.py', 'epoch_2.pth', 'iter_2.pth/..', None):
        remove_interrupted(hook, name)
    assert (tmp_path / 'w' / 'slow.py').is_file() and (tmp_path / 'w' / 'epoch_2.pth').is_file()


def test_without_a_checkpoint_hook(here, tmp_path, capsys):
    assert here(2, '--cfg-options', 'default_hooks.checkpoint=None', length=2) == 143
    assert capsys.readouterr().err.splitlines()[-1] == (
        'interrupted by SIGTERM; iteration 2; no checkpoint, since default_hooks.checkpoint is off')


def test_handlers_are_restored(here):
    before = [signal.getsignal(number) for number in SIGNALS]
    assert here(1, length=2) == 143
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_ignored_signals_stay_ignored(tmp_path):
    """As under nohup."""
    write_training(tmp_path, by_epoch=False, length=8)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w')
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(process, 'rank 0: loss', 2)
    assert stop(process, signal.SIGHUP)[0] == 0


def test_stopped_and_resumed_equals_uninterrupted(here, tmp_path):
    """Iterations: the weights of the end are those of a training that was not stopped."""
    settings = dict(by_epoch=False, length=8, interval=8)
    assert here(0, **settings) == 0
    expected = read_checkpoint('w/iter_8.pth')['state_dict']
    (tmp_path / 'w').rename(tmp_path / 'whole')
    time.sleep(1.1)  # mmengine names a run by its second, and finds the visualizer of the first run by this name
    assert here(3, **settings) == 143
    assert main(['train', 'slow.py', '--work-dir', 'w', '--resume']) == 0
    for name, value in read_checkpoint('w/iter_8.pth')['state_dict'].items():
        assert torch.equal(value, expected[name])
