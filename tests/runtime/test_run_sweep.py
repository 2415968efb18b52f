"""Several configs with several seeds: what is run, what is taken up again, and the one table."""
import csv
import json
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
        '| first | 3 of 3 | 0.7000 ± 0.2000 |\n| second | 3 of 3 | 0.7500 ± 0.2000 |\n\n## Comparisons\n\n'
        'Over images:\n\n* first and second are not compared on DSC_pooled over images: work_dirs/sweep/first/seed_0 '
        'has no scores per image.\n\nOver seeds:\n\n* DSC_pooled: too few seeds to show a difference between first '
        'and second (3; the smallest possible p is 0.25; 6 are needed). first − second: −5.00 points.\n')
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


def rows_of():
    return {row['config']: [result['seed'] for result in row['results']]
            for row in json.loads(Path('work_dirs/sweep/sweep.json').read_text())['rows']}


def test_rows_of_earlier_calls_are_kept(configs, machine, capsys):
    assert main(['sweep', 'first.py', '--seeds', '0', '1']) == 0
    assert main(['sweep', 'second.py', '--seeds', '0', '1', '2']) == 0
    assert list(table()) == ['second', 'first'] and table()['first']['seeds'] == '2'
    assert float(table()['first']['DSC_pooled mean']) == pytest.approx(0.6)
    report = Path('work_dirs/sweep/sweep.md').read_text()
    assert '| first | 2 of 2 (seeds 0, 1) | ' in report and '\n* first is a row of an earlier call\n' in report
    assert 'too few seeds to show a difference between second and first (2;' in report
    assert rows_of() == {'second': [0, 1, 2], 'first': [0, 1]}
    machine.fails = {2: 'killed in train'}
    assert main(['sweep', 'first.py', '--seeds', '2']) == 130  # an interrupted call loses none
    assert rows_of() == {'second': [0, 1, 2], 'first': [0, 1]}
    machine.fails = {}
    assert main(['sweep', 'first.py', '--seeds', '0']) == 0 and rows_of() == {'first': [0], 'second': [0, 1, 2]}


def test_rows_of_other_settings_are_told_apart(configs, machine):
    assert main(['sweep', *configs, '--seeds', '0']) == 0
    before = table()
    assert main(['sweep', 'first.py', '--seeds', '0', '--tta']) == 0
    rows = table()
    assert [name.split(' ')[0] for name in rows] == ['first', 'first', 'second']
    assert list(rows)[0] == 'first' and list(rows)[1].startswith('first (settings ')
    assert rows['second'] == before['second']
    report = Path('work_dirs/sweep/sweep.md').read_text()
    assert 'first, seed 0 was tested again with other settings; its scores per image were replaced' in report
    # a config that is refused does not remove the results of the same name
    Path('second.py').write_text(Path('second.py').read_text().replace('lr=0.2', 'lr=0.3'))
    assert main(['sweep', 'second.py', '--seeds', '0']) == 1
    assert sum(row['seeds'] == '1' and name.startswith('second') for name, row in table().items()) == 1


@pytest.mark.parametrize('text', ['{"format": 1, "rows": [{"conf', '[]', '{"format": 9, "rows": []}', '{"rows": []}',
                                  '{"format": 1, "rows": [{"config": "a"}]}', '{"format": 1, "rows": [5]}'])
def test_damaged_rows_are_reported_and_kept(configs, machine, capsys, text):
    Path('work_dirs/sweep').mkdir(parents=True)
    Path('work_dirs/sweep/sweep.json').write_text(text)
    message = error_of(capsys, 'sweep', 'first.py', '--seeds', 0)
    assert message.startswith('work_dirs/sweep/sweep.json cannot be read (')
    assert message.endswith('; it holds the rows of earlier calls: restore it, or move it away to start a new table')
    assert not machine.commands and Path('work_dirs/sweep/sweep.json').read_text() == text


def test_baseline(configs, machine, capsys):
    Path('third.py').write_text(Path('first.py').read_text())
    assert main(['sweep', *configs, 'third.py', '--seeds', '0', '--baseline', 'first.py']) == 0
    report = Path('work_dirs/sweep/sweep.md').read_text()
    assert 'between second and first (1;' in report and 'between third and first' in report
    assert 'second and third' not in report and 'third and second' not in report
    assert error_of(capsys, 'sweep', *configs, '--seeds', 0, '--baseline', 'frist') == (
        "--baseline frist is not one of the configs: first, second, third (did you mean 'first'?)")
    assert main(['sweep', 'second.py', '--seeds', '0', '--baseline', 'first']) == 0  # a row of an earlier call


def test_checkpoints_chosen_on_the_test_images_are_reported_once(configs, machine, capsys):
    command = ['sweep', *configs, '--seeds', '0', '--metrics', 'DSC_pooled']
    assert main([*command, '--cfg-options', 'test_dataloader.dataset.split=val']) == 0
    warning = '* The checkpoint was chosen on the images it is tested on; the figures are optimistic.'
    report = Path('work_dirs/sweep/sweep.md')
    assert report.read_text().count(warning) == 1 and warning in capsys.readouterr().out
    Path('second.py').write_text(Path('second.py').read_text() + "test_dataloader['dataset']['split'] = 'val'\n")
    assert main([*command, '--work-dir', 'own']) == 0
    assert '\n* second: The checkpoint was chosen on the images it is tested on;' in Path('own/sweep.md').read_text()
    assert main([*command, '--work-dir', 'last', '--checkpoint', 'last']) == 0
    assert 'optimistic' not in Path('last/sweep.md').read_text()
