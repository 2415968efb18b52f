"""Several configs with several seeds: what is run, what is taken up again, and the one table."""
import csv
from pathlib import Path

import pytest
from seed_machine import TINY, Machine
from tiny import error_of

from mmkcla.cli import main
from mmkcla.runtime import processes


@pytest.fixture
def configs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rate in (('first', 0.1), ('second', 0.2)):
        Path(f'{name}.py').write_text(TINY.replace('{root}', 'data').replace('lr=0.1', f'lr={rate}'))
    return ['first.py', 'second.py']


class TwoConfigs(Machine):
    """As :class:`Machine`; the second config's scores are better by 0.05."""

    def __call__(self, command):
        if 'second.py' in command:
            self.scores = {seed: score + 0.05 for seed, score in self.base.items()}
        else:
            self.scores = dict(self.base)
        return super().__call__(command)

    def __init__(self):
        super().__init__()
        self.base = dict(self.scores)


@pytest.fixture
def machine(monkeypatch):
    machine = TwoConfigs()
    monkeypatch.setattr(processes, 'run_process', machine)
    return machine


def table():
    with open('work_dirs/sweep/sweep.csv', encoding='utf-8', newline='') as file:
        return {row['config']: row for row in csv.DictReader(file)}


def test_one_row_a_config(configs, machine, capsys):
    assert main(['sweep', *configs, '--seeds', '0', '1', '2', '--metrics', 'DSC_pooled']) == 0
    assert len(machine.take()) == 12
    rows = table()
    assert list(rows) == ['first', 'second'] and rows['first']['seeds'] == '3'
    assert float(rows['first']['DSC_pooled mean']) == pytest.approx(0.7)
    assert float(rows['second']['DSC_pooled mean']) == pytest.approx(0.75)
    assert float(rows['second']['DSC_pooled sd']) == pytest.approx(0.2) and rows['second']['DSC_pooled n'] == '3'
    assert rows['first']['HD95_mean n'] == '2'
    report = Path('work_dirs/sweep/sweep.md').read_text()
    assert report == (
        '# Sweep\n\nSeeds 0, 1, 2; mean ± sample standard deviation (n − 1) over the seeds that are done.\n\n'
        '| config | seeds | DSC_pooled |\n|---|---|---|\n'
        '| first | 3 of 3 | 0.7000 ± 0.2000 |\n| second | 3 of 3 | 0.7500 ± 0.2000 |\n')
    assert report in capsys.readouterr().out
    assert main(['sweep', *configs, '--seeds', '0', '1', '2', '--metrics', 'HD95_mean']) == 0
    assert Path('work_dirs/sweep/sweep.md').read_text().count(' (n = 2) |') == 2
    assert Path('work_dirs/sweep/second/seed_2/metrics.json').is_file()
    assert Path('work_dirs/sweep/second/results.md').is_file()


def test_goes_on_where_it_was(configs, machine):
    machine.fails = {1: 'killed in train'}
    assert main(['sweep', *configs, '--seeds', '0', '1']) == 130
    machine.take(), machine.fails.clear()
    assert main(['sweep', *configs, '--seeds', '0', '1']) == 0
    assert machine.take()[:2] == ['train 1 resumed', 'test 1 best_mIoU_iter_1.pth']
    assert main(['sweep', *configs, '--seeds', '0', '1']) == 0 and machine.take() == []
    assert main(['sweep', *configs, '--seeds', '0', '1', '2']) == 0 and len(machine.take()) == 4
    # a row is of the seeds asked for, although the config's own results list all
    assert main(['sweep', *configs, '--seeds', '0']) == 0 and table()['first']['seeds'] == '1'
    assert '3 of 3 seeds are done.' in Path('work_dirs/sweep/first/results.md').read_text()


def test_what_fails_is_told_and_the_rest_go_on(configs, machine, capsys):
    Path('broken.py').write_text('default_scope = "mmseg"\n')
    Path('odd.py').write_text(f'_base_ = "./{configs[0]}"\ntrain_dataloader = 5\n')
    assert main(['sweep', 'odd.py', '--seeds', '0']) == 1
    assert 'odd.py: train_dataloader must be a dict, got 5' in capsys.readouterr().err
    machine.fails = {1: 'test'}
    assert main(['sweep', 'broken.py', *configs, '--seeds', '0', '1']) == 1
    shown = capsys.readouterr()
    assert "error: broken: config " in shown.err and "has no 'model'" in shown.err
    assert shown.err.endswith('error: 3 of 3 configs failed: broken, first, second\n')
    report = Path('work_dirs/sweep/sweep.md').read_text()
    assert '| broken | 0 of 2 |' in report and '| second | 1 of 2 | 0.5500 |' in report
    assert '* first, seed 1 failed: test failed (exit code 2): the data are gone' in report


def test_options_reach_every_training(configs, machine):
    assert main(['sweep', *configs, '--seeds', '0', '--launcher', 'slurm', '--gpus', '2', '--amp', '--cfg-options',
                 'train_cfg.max_iters=1']) == 0
    trainings = [words for words in machine.commands if words[0] == 'train']
    assert len(trainings) == 2 and all('--amp' in words and 'train_cfg.max_iters=1' in words for words in trainings)


def test_dry_run_writes_nothing(configs, machine, capsys):
    assert main(['sweep', *configs, '--seeds', '0', '--dry-run']) == 0
    assert 'second/seed_0' in capsys.readouterr().out and not Path('work_dirs').exists() and not machine.commands


def test_bad_input(configs, machine, capsys):
    Path('other').mkdir()
    Path('other/first.py').write_text(Path('first.py').read_text())
    assert error_of(capsys, 'sweep', 'first.py', 'other/first.py', '--seeds', 0) == (
        'two configs are named first; rename one, since the names are used as folders')
    assert error_of(capsys, 'sweep', 'first.py', 'absent.py', '--seeds', 0).startswith('no config \'absent.py\'')
    assert not machine.commands
    assert error_of(capsys, 'sweep', *configs, '--seeds', 0, '--metrics', 'mDice') == (
        '--metrics mDice: not in the results; available: DSC_pooled, HD95_mean, empty_truth')
    assert error_of(capsys, 'sweep', *configs, '--seeds', 0, 0) == '--seeds: 0 is given more than once'
