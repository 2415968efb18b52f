"""Two processes: all stop after the same step, end with torchrun, and name a rank that is lost."""
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from slow_training import ROOT, children, start, stop, wait_for, write_training

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import UserError
from mmkcla.runtime.watch import RankWatch, timeout_seconds

QUICK = dict(TORCH_ELASTIC_SHUTDOWN_TIMEOUT='3')


def begin(folder, *options, **settings):
    process = start(folder, 'train', 'slow.py', '--launcher', 'pytorch', '--work-dir', 'w', *options, processes=2,
                    **settings)
    process.seen = wait_for(process, 'rank 1: loss', 3)
    return process


def ours(lines):
    return [line for line in lines if re.match(r'error|interrupted|SIG', line)]


def steps(lines):
    return [sum(f'rank {rank}: loss' in line for line in lines) for rank in (0, 1)]


def test_torchrun_passes_a_signal_on(tmp_path):
    write_training(tmp_path, by_epoch=False, interval=100)
    _, lines = stop(begin(tmp_path), signal.SIGTERM)
    said = ours(lines)
    assert said[0] == 'SIGTERM: stopping after this step; a second signal stops at once' and len(said) == 2
    name, = (path.name for path in (tmp_path / 'w').glob('iter_*.pth'))
    done = read_checkpoint(tmp_path / 'w' / name)['meta']['iter']
    assert said[1].startswith(f'interrupted by SIGTERM; iteration {done}, checkpoint {tmp_path}/w/{name}')


def test_a_signal_to_one_rank_stops_all(tmp_path):
    write_training(tmp_path, by_epoch=False, interval=100)
    process = begin(tmp_path)
    os.kill(children(process)[1], signal.SIGUSR1)
    lines = process.communicate(timeout=60)[0].splitlines()
    assert ours(lines)[-1].startswith('interrupted by SIGUSR1; iteration ')
    assert sum('exitcode  : 138' in line for line in lines) == 2  # both end with the code of the signal
    assert len(set(steps([*process.seen, *lines]))) == 1  # after the same step


def test_ranks_end_when_torchrun_is_killed(tmp_path):
    write_training(tmp_path)
    process = begin(tmp_path)
    ranks = children(process)
    assert len(ranks) == 2
    process.kill()
    lines = process.communicate(timeout=20)[0].splitlines()  # returns when no process holds the pipe
    assert sorted(ours(lines)) == [f'error: rank {rank}: torchrun (process {process.pid}) is gone; stopped'
                                   for rank in (0, 1)]
    assert not any(Path(f'/proc/{rank}/cmdline').exists() and Path(f'/proc/{rank}/cmdline').read_bytes()
                   for rank in ranks)  # empty: ended, and not collected yet


def test_a_dead_rank_is_named(tmp_path):
    write_training(tmp_path)
    process = begin(tmp_path, TORCH_ELASTIC_SHUTDOWN_TIMEOUT='20')
    dead = children(process)[1]
    os.kill(dead, signal.SIGKILL)
    lines = ours(process.communicate(timeout=60)[0].splitlines())
    assert len(lines) == 2 and lines[1].startswith(f'error: rank 1 (process {dead} on ')
    assert 'has died or is stopped (' in lines[1] and lines[1].endswith('; resume with --resume')


def test_a_stopped_rank_is_named(tmp_path):
    write_training(tmp_path)
    process = begin(tmp_path, MMKCLA_RANK_TIMEOUT='3', **QUICK)
    stopped = children(process)[1]
    os.kill(stopped, signal.SIGSTOP)
    line, = ours(process.communicate(timeout=60)[0].splitlines())
    assert line.startswith(f'error (rank 0): rank 1 (process {stopped} on ')
    assert line.endswith('has not answered for 3 s: it is stopped, hangs, or its machine is gone (MMKCLA_RANK_TIMEOUT)')


def test_elastic_restart_resumes(tmp_path):
    """torchrun starts all processes again after one has died; the training goes on from the last checkpoint."""
    write_training(tmp_path, by_epoch=False, length=12, interval=2)
    process = begin(tmp_path, '--resume', torchrun=('--max-restarts=1',), **QUICK)
    os.kill(children(process)[1], signal.SIGKILL)
    lines = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 0, lines
    assert any('resumed epoch: 0, iter: ' in line for line in lines)
    assert read_checkpoint(tmp_path / 'w/iter_12.pth')['meta']['iter'] == 12


class Store(dict):
    """A store of torch.distributed in this process."""

    def set(self, key, value):
        self[key] = value.encode()

    def check(self, keys):
        return all(key in self for key in keys)

    def get(self, key):
        return self[key]


@pytest.fixture
def watches():
    store = Store()
    return [RankWatch(store, rank, 3, 60, 'run') for rank in range(3)]


def test_watch(watches, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    monkeypatch.setattr(time, 'sleep', lambda seconds: now.__setitem__(0, now[0] + seconds))
    for watch in watches[:2] * 2:
        watch.exchange()
    assert not watches[0].silent(0.5)  # the third has not started
    for now[0] in range(1, 10):
        watches[0].exchange()
    assert [peer.number for peer in watches[0].silent(5)] == [1]
    assert not watches[0].silent(10)
    assert watches[0].explain() == f'{watches[0].silent(5)[0].where} has died or is stopped'
    watches[2].exchange()
    watches[2].end('cannot read\nx.jpg')
    assert watches[1].explain() == 'rank 2 has ended first: cannot read x.jpg'


def test_the_thread_has_ended_before_the_process_group_is_closed(watches):
    """At the exit of Python, a thread inside the store could abort the process."""
    for watch in watches:
        watch.start()
    watches[0].end('finished')
    watches[0].end('twice')
    assert [watch.is_alive() for watch in watches] == [False, True, True]
    for watch in watches[1:]:
        watch.end('finished')
    assert not any(watch.is_alive() for watch in watches)


@pytest.mark.parametrize('value', ['soon', '-1', 'inf', 'nan'])
def test_a_wrong_timeout(monkeypatch, value):
    monkeypatch.setenv('MMKCLA_RANK_TIMEOUT', value)
    with pytest.raises(UserError, match=f'MMKCLA_RANK_TIMEOUT={value!r} must be a number of seconds, or 0'):
        timeout_seconds()


def test_the_launch_script_passes_the_signals():
    script = (ROOT / 'tools/dist_train.sh').read_text()
    assert 'SIGUSR1}' in script
    usage = subprocess.run(['bash', ROOT / 'tools/dist_train.sh'], capture_output=True, text=True, check=False)
    assert usage.returncode == 2 and usage.stderr.rstrip().endswith('(default here: 120).')
