"""Several seeds of a training: what is run, what is taken up again, and the table of results."""
import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import MessageHub
from seed_machine import TINY, Machine, write_pairs
from tiny import error_of

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.runtime import processes
from mmkcla.runtime.config import load_config
from mmkcla.runtime.run_folder import choose_checkpoint
from mmkcla.runtime.seeds import records
from mmkcla.runtime.seeds import report as reports

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp('data'))


@pytest.fixture
def config(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'tiny.py').write_text(TINY.replace('{root}', str(data)))
    return 'tiny.py'


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(processes, 'run_process', machine)
    return machine


def table(path='work_dirs/tiny/results.csv'):
    with open(path, encoding='utf-8', newline='') as file:
        return {row['seed']: row for row in csv.DictReader(file)}


BEST = 'best_mIoU_iter_1.pth'


def test_runs_all_seeds_and_tells_mean_and_deviation(config, machine, capsys):
    assert main(['seeds', config, '--seeds', '0', '1', '2']) == 0
    assert machine.take() == ['train 0', f'test 0 {BEST}', 'train 1', f'test 1 {BEST}', 'train 2', f'test 2 {BEST}']
    rows = table()
    assert list(rows) == ['0', '1', '2', 'mean', 'sd', 'n']
    assert [rows[seed]['DSC_pooled'] for seed in '012'] == ['0.5', '0.7', '0.9']
    assert {rows[seed]['status'] for seed in '012'} == {'done'} and rows['1']['checkpoint'] == BEST
    mean, sd = (float(rows[row]['DSC_pooled']) for row in ('mean', 'sd'))
    assert (mean, sd) == pytest.approx((0.7, 0.2))  # n - 1: sqrt((.04 + 0 + .04) / 2)
    assert (rows['1']['HD95_mean'], rows['mean']['HD95_mean'], rows['n']['HD95_mean']) == ('', '3.0', '2')
    report = Path('work_dirs/tiny/results.md').read_text()
    assert report.startswith('# tiny\n\n3 of 3 seeds are done. Mean ± sample standard deviation (n − 1).')
    assert '| metric | mean ± sd | n | seed 0 | seed 1 | seed 2 |' in report
    assert '| DSC_pooled | 0.7000 ± 0.2000 | 3 | 0.5000 | 0.7000 | 0.9000 |' in report
    assert '| HD95_mean | 3.00 ± 0.00 | 2 | 3.00 |  | 3.00 |' in report
    assert '| empty_truth | 2 ± 0 | 3 | 2 | 2 | 2 |' in report
    shown = capsys.readouterr()
    assert 'DSC_pooled: 0.7000 ± 0.2000 (n = 3)' in shown.out and 'results: work_dirs/tiny/results.csv' in shown.out
    assert shown.err == ''


def test_finished_seeds_stay_and_new_ones_join(config, machine, capsys):
    assert main(['seeds', config, '--seeds', '0']) == 0
    assert table()['sd']['DSC_pooled'] == ''  # of one value there is none
    assert '| DSC_pooled | 0.5000 | 1 | 0.5000 |' in Path('work_dirs/tiny/results.md').read_text()
    machine.take()
    assert main(['seeds', config, '--seeds', '1', '0']) == 0
    assert machine.take() == ['train 1', f'test 1 {BEST}']
    assert 'seed 0 (2 of 2): already done, skipped' in capsys.readouterr().out
    assert list(table()) == ['1', '0', 'mean', 'sd', 'n'] and table()['n']['DSC_pooled'] == '2'


def test_seeds_of_earlier_calls_are_listed_after_those_asked_for(config, machine):
    assert main(['seeds', config, '--seeds', '1', '0']) == 0
    assert main(['seeds', config, '--seeds', '2']) == 0
    rows, report = table(), Path('work_dirs/tiny/results.md')
    assert list(rows) == ['2', '0', '1', 'mean', 'sd', 'n']
    assert [rows[seed]['DSC_pooled'] for seed in '201'] == ['0.9', '0.5', '0.7']
    assert float(rows['mean']['DSC_pooled']) == pytest.approx(0.7)
    assert rows['0']['checkpoint'] == BEST and '3 of 3 seeds are done.' in report.read_text()
    assert '* test: plain, best checkpoint\n' in report.read_text()
    assert main(['seeds', config, '--seeds', '0', '--tta', '--checkpoint', 'last']) == 0
    assert list(table()) == ['0', 'mean', 'sd', 'n']  # the others' results are of another test
    assert '* test: test-time augmentation, last checkpoint\n' in report.read_text()
    assert main(['seeds', config, '--seeds', '1']) == 0
    assert list(table()) == ['1', '2', 'mean', 'sd', 'n']
    for folder in ('seed_02', 'seed_x', 'seed_7'):  # of others, and one without a record
        Path('work_dirs/tiny', folder).mkdir()
    assert main(['seeds', config, '--seeds', '1']) == 0 and list(table()) == ['1', '2', 'mean', 'sd', 'n']
    machine.fails = {3: 'train'}
    assert main(['seeds', config, '--seeds', '3']) == 1
    assert [row['status'] for row in table().values()][:3] == [
        'training failed (exit code 2): the data are gone', 'done', 'done']


def test_a_failing_seed_is_told_and_the_rest_go_on(config, machine, capsys):
    machine.fails = {0: 'train', 1: 'test'}
    assert main(['seeds', config, '--seeds', '0', '1', '2']) == 1
    assert machine.take() == ['train 0', 'train 1', f'test 1 {BEST}', 'train 2', f'test 2 {BEST}']
    shown = capsys.readouterr().err
    assert 'error: seed 0: training failed (exit code 2): the data are gone\n' in shown
    assert 'error: seed 1: test failed (exit code 2): the data are gone\n' in shown
    assert shown.endswith('error: 2 of 3 seeds failed: 0, 1\n')
    rows = table()
    assert rows['0']['status'] == 'training failed (exit code 2): the data are gone'
    assert (rows['0']['DSC_pooled'], rows['n']['DSC_pooled'], rows['mean']['DSC_pooled']) == ('', '1', '0.9')
    report = Path('work_dirs/tiny/results.md').read_text()
    assert '1 of 3 seeds are done.' in report and '* seed 1 failed: test failed (exit code 2): the data are' in report
    machine.fails = {}
    assert main(['seeds', config, '--seeds', '0', '1', '2']) == 0  # only what is missing is made up for
    assert machine.take() == ['train 0', f'test 0 {BEST}', f'test 1 {BEST}']


def test_an_interrupted_seed_is_resumed(config, machine, capsys):
    machine.fails = {1: 'killed in train'}
    assert main(['seeds', config, '--seeds', '0', '1', '2']) == 130
    assert capsys.readouterr().err == 'interrupted; run the same command again to resume\n'
    assert machine.take() == ['train 0', f'test 0 {BEST}', 'train 1']
    assert [row['status'] for row in table().values()][:3] == ['done', 'pending', 'pending']
    machine.fails = {}
    assert main(['seeds', config, '--seeds', '0', '1', '2']) == 0
    assert machine.take() == ['train 1 resumed', f'test 1 {BEST}', 'train 2', f'test 2 {BEST}']


def test_a_test_cut_off_after_its_metrics_is_made_again(config, machine, capsys):
    assert main(['seeds', config, '--seeds', '0']) == 0
    assert json.loads(Path('work_dirs/tiny/seed_0/seed.json').read_text())['checkpoint'] == BEST
    Path('work_dirs/tiny/seed_0/metrics.json').write_text('{"DSC_poo')
    machine.take()
    capsys.readouterr()
    assert main(['seeds', config, '--seeds', '0']) == 0
    assert machine.take() == [f'test 0 {BEST}']
    assert Path('work_dirs/tiny/seed_0/metrics.json.damaged').read_text() == '{"DSC_poo'  # not overwritten
    assert ('metrics.json cannot be read (Unterminated string starting at: line 1 column 2 (char 1)); it is kept as '
            'metrics.json.damaged, and the seed is tested again\n') in capsys.readouterr().err
    machine.fails = {0: 'killed in test'}  # when another test has written its metrics
    assert main(['seeds', config, '--seeds', '0', '--tta']) == 130
    machine.fails = {}
    assert main(['seeds', config, '--seeds', '0']) == 0 and table()['0']['DSC_pooled'] == '0.5'


def test_another_config(config, machine, capsys):
    """One of the training is refused, one of the test leads to a new test, one of the machine to nothing."""
    run = ['seeds', config, '--seeds', '0']
    assert main(run) == 0 and machine.take()
    assert main([*run, '--cfg-options', 'train_dataloader.num_workers=2', 'randomness.seed=7',
                 'env_cfg.cudnn_benchmark=True']) == 0
    assert machine.take() == []
    assert error_of(capsys, *run, '--cfg-options', 'optim_wrapper.optimizer.lr=0.2', 'load_from=a.pth', '--amp') == (
        'work_dirs/tiny/seed_0 belongs to a different config (optim_wrapper.optimizer.lr: 0.1 there, 0.2 now; '
        'load_from: nothing there, "a.pth" now; amp: nothing there, true now); choose another --work-dir, or delete '
        'the folder to train again')
    assert machine.take() == []
    for options, checkpoint in ((['--tta'], BEST), (['--cfg-options', 'test_evaluator.iou_metrics=[mDice]'], BEST),
                                (['--checkpoint', 'last'], 'iter_2.pth')):
        assert main([*run, *options]) == 0 and machine.take() == [f'test 0 {checkpoint}']
    (Path('other') / 'seed_0').mkdir(parents=True)
    torch.save({}, 'other/seed_0/iter_1.pth')
    assert error_of(capsys, *run, '--work-dir', 'other') == (
        'other/seed_0 has checkpoints but no seed.json, so their config is unknown; choose another --work-dir, or test '
        'them with --test-only')


def test_only_testing(config, machine, capsys):
    folder = Path('hand/seed_3')
    folder.mkdir(parents=True)
    torch.save({}, folder / 'iter_9.pth')
    run = ['seeds', config, '--work-dir', 'hand', '--test-only', '--seeds']
    assert main([*run, '3', '4']) == 1 and machine.take() == ['test 3 iter_9.pth']
    shown = capsys.readouterr().err
    assert 'error: seed 4: no checkpoints in hand/seed_4\n' in shown
    assert 'no best checkpoint in hand/seed_3 (was there a validation?); testing the last one, iter_9.pth\n' in shown
    assert main([*run, '3']) == 0
    assert machine.take() == ['test 3 iter_9.pth']  # asked for, so made again
    assert not (folder / 'seed.json').exists()
    machine.fails = {0: 'killed in train'}
    assert main(['seeds', config, '--work-dir', 'hand', '--seeds', '0']) == 130
    machine.take()
    assert main([*run, '0']) == 1 and machine.take() == []
    assert ('error: seed 0: the training in hand/seed_0 has not finished; run without --test-only'
            in capsys.readouterr().err)


def test_dry_run_prints_and_writes_nothing(config, machine, capsys):
    options = ['--cfg-options', 'model.decode_head.threshold=0.4', 'optim_wrapper.optimizer.type=Adam']
    run = ['seeds', config, '--seeds', '0', '5', '--dry-run']
    assert main([*run, '--no-checks', '--amp', '--auto-scale-lr', '--tta', '--launcher', 'pytorch', '--gpus', '3',
                 *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '3', '-m', 'mmkcla']
    more = ['--launcher', 'pytorch', '--no-checks', *options]
    for seed, number in (('0', 0), ('5', 3)):
        folder = f'work_dirs/tiny/seed_{seed}'
        assert [shlex.split(line, comments=True) for line in lines[number:number + 3]] == [
            [], [*start, 'train', 'tiny.py', '--seed', seed, '--work-dir', folder, '--amp', '--auto-scale-lr', *more],
            [*start, 'test', 'tiny.py', f'{folder}/best_*.pth', '--work-dir', folder, '--per-image', '--tta',
             *more]]
    assert machine.take() == [] and not Path('work_dirs').exists()
    assert main(['seeds', config, '--seeds', '0']) == 0
    capsys.readouterr()
    assert main(run) == 0 and capsys.readouterr().out.splitlines()[0] == '# seed 0: already done'
    assert main([*run, '--work-dir', 'w', '--cfg-options', 'train_dataloader.sampler.seed=3']) == 0
    assert 'note: train_dataloader.sampler.seed is 3 in the config: the order of images is' in capsys.readouterr().err
    for launcher, words in (('slurm', 'srun --kill-on-bad-exit=1 --ntasks 2'), ('mpi', 'mpirun -np 2')):
        assert main([*run, '--work-dir', 'w', '--launcher', launcher, '--gpus', '2']) == 0
        assert capsys.readouterr().out.splitlines()[1].startswith(f'{words} {sys.executable} -m mmkcla train ')


def test_refusals(config, machine, monkeypatch, capsys):
    run = ['seeds', config, '--seeds', '0']
    for options, message in (
            (['0'], '--seeds: 0 is given more than once'),
            (['-1'], '--seeds: a seed must be between 0 and 4294967295, got -1'),
            (['1', '--gpus', '2'], '--gpus needs --launcher (pytorch, on one machine)'),
            (['1', '--gpus', '0', '--launcher', 'pytorch'], '--gpus must be at least 1, got 0'),
            (['1', '--cfg-options', 'test_evaluator=None'],
             'config tiny.py has no \'test_evaluator\'; it cannot be trained and tested')):
        assert error_of(capsys, *run, *options) == message
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    assert error_of(capsys, *run, '--launcher', 'pytorch') == \
        '--launcher needs --gpus N, the number of processes, since torch finds no GPU'
    Path('file').write_text('')
    assert error_of(capsys, *run, '--work-dir', 'file').startswith('cannot write to file: ')
    monkeypatch.setenv('RANK', '0')
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert error_of(capsys, *run).startswith('do not run this command under torchrun')
    assert machine.take() == []


def test_which_checkpoint(tmp_path, capsys):
    """The best one is what the last one says; leftovers of a crash are passed over."""
    choose = choose_checkpoint
    assert choose(tmp_path, 'DSC', 'best') is None
    for name, best in (('epoch_9', 'best_DSC_epoch_4'), ('best_DSC_epoch_4', None), ('best_DSC_epoch_8', None),
                       ('best_a_b_epoch_2', None)):
        info = dict(best_ckpt=f'/moved/since/{best}.pth') if best else {}
        torch.save(dict(message_hub=dict(runtime_info=info)), tmp_path / f'{name}.pth')
    assert choose(tmp_path, 'DSC', 'best').name == 'best_DSC_epoch_4.pth'
    assert choose(tmp_path, 'DSC', 'last').name == choose(tmp_path, None, 'best').name == 'epoch_9.pth'
    torch.save({}, tmp_path / 'epoch_9.pth')
    assert choose(tmp_path, 'a/b', 'best').name == 'best_a_b_epoch_2.pth'
    assert choose(tmp_path, 'HD95', 'best').name == 'epoch_9.pth'
    assert 'note: no best checkpoint' in capsys.readouterr().err


def test_processes(capsys):
    run = [sys.executable, '-c']
    code = 'import sys; print("a", file=sys.stderr); print("error: b", file=sys.stderr); print("c", file=sys.stderr); '
    assert processes.run_process([*run, code + 'sys.exit(3)']) == (3, 'error: b')
    assert capsys.readouterr().err == 'a\nerror: b\nc\n'
    assert processes.run_process([*run, 'import mmkcla']) == (0, '')
    assert processes.run_process([*run, 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)']) == (-9, '')
    assert processes.run_process(['no-such-program']) == (
        127, 'cannot start no-such-program: No such file or directory')


def test_being_told_to_stop_stops_the_training():
    """SIGTERM, as a scheduler sends it, must not leave the training behind."""
    code = ('import sys; from mmkcla.runtime import processes\n'
            'with processes.stoppable():\n'
            '    processes.run_process([sys.executable, "-c", "import os, sys, time; '
            'print(os.getpid(), file=sys.stderr, flush=True); time.sleep(60)"])\n')
    process = subprocess.Popen([sys.executable, '-c', code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    child = int(process.stderr.readline())
    process.terminate()
    assert 'Interrupted: run the same command again to resume' in process.communicate(timeout=20)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_statistics_and_tables(tmp_path):
    values = np.random.default_rng(0).random(5)
    results = [records.SeedResult(seed, 'done', 'a.pth', {
        'IoU': float(value), 'IoU_lo': 0.1, 'lo_hi': 40 + seed, 'share': seed, 'text': 'x', 'nan': None})
        for seed, value in enumerate(values)]
    found = reports.summarise(results)
    assert list(found) == ['IoU', 'lo_hi', 'share']  # the mean of lower bounds is no bound
    assert found['IoU'].mean == pytest.approx(values.mean()) and found['IoU'].sd == pytest.approx(values.std(ddof=1))
    assert found['IoU'].count == 5
    assert reports.summarise([]) == {} and reports.summarise(results[:1])['IoU'].sd is None
    reports.write_table(tmp_path / 'r.csv', results)
    rows = table(tmp_path / 'r.csv')
    assert float(rows['3']['IoU']) == values[3]  # in full
    assert (rows['mean']['IoU_lo'], rows['0']['IoU_lo'], rows['mean']['lo_hi']) == ('', '0.1', '42.0')
    reports.write_report(tmp_path / 'r.md', 'x', [*results, records.SeedResult(9, 'a | b < c')], ['config x'])
    report = (tmp_path / 'r.md').read_text()
    assert '| lo_hi | 42.0 ± 1.6 | 5 | 40.0 | 41.0 | ' in report and '| IoU_lo |  |  | 0.1000 | ' in report
    assert report.endswith('* seed 9 failed: a \\| b &lt; c\n* config x\n')
    assert not list(tmp_path.glob('.*'))


def test_what_a_fingerprint_tells_apart():
    base = dict(model=dict(type='A', act=torch.nn.ReLU), train_dataloader=dict(batch_size=2, num_workers=1),
                randomness=dict(seed=1), test_cfg={}, work_dir='x')
    print_of = lambda **changes: records.fingerprint(records.training_parts({**base, **changes}))  # noqa: E731
    same = [dict(randomness=dict(seed=2)), dict(train_dataloader=dict(num_workers=4, batch_size=2)),
            dict(work_dir='y'), dict(test_cfg=dict(a=1)), dict(env_cfg=dict(a=1))]
    other = [dict(model=dict(type='A', act=torch.nn.GELU)), dict(randomness=dict(seed=1, deterministic=True)),
             dict(train_dataloader=dict(batch_size=3)), dict(custom_hooks=[dict(type='EMAHook')])]
    assert {print_of(**changes) for changes in same} == {print_of()}
    assert len({print_of(), *(print_of(**changes) for changes in other)}) == 5
    amp, plain = (records.fingerprint(records.training_parts(base, amp=amp)) for amp in (True, False))
    assert amp != plain == print_of()
    assert records.test_parts(base, tta=True) == dict(test_cfg={}, tta=True)
    assert records.differences(dict(a=[1, dict(b=2)], c={}), dict(a=[1, dict(b=3)], d='e')) == [
        'a.1.b: 2 there, 3 now', 'c: {} there, nothing now', 'd: nothing there, "e" now']


def test_real_runs(config, monkeypatch):
    """Two seeds trained and tested in this process, then as the tool does it: all is finished, and one more."""
    def in_this_process(command):
        MessageHub._instance_dict.clear()  # mmengine names runs by the second, and would continue the last one
        return main(command[command.index('mmkcla') + 1:]), ''

    monkeypatch.setattr(processes, 'run_process', in_this_process)
    assert main(['seeds', config, '--seeds', '3', '4']) == 0
    rows, weights = table(), []
    for seed in '34':
        folder = Path('work_dirs/tiny') / f'seed_{seed}'
        state = read_checkpoint(folder / 'iter_2.pth')
        assert state['meta']['seed'] == int(seed)
        weights.append(state['state_dict']['decode_head.conv_seg.weight'])
        metrics = json.loads((folder / 'metrics.json').read_text())
        assert rows[seed]['checkpoint'] == Path(state['message_hub']['runtime_info']['best_ckpt']).name
        assert float(rows[seed]['mDice']) == metrics['mDice'] and {'mIoU', 'aAcc'} <= metrics.keys()
    assert not torch.equal(*weights)
    values = [float(rows[seed]['mIoU']) for seed in '34']
    assert float(rows['mean']['mIoU']) == pytest.approx(np.mean(values))
    assert float(rows['sd']['mIoU']) == pytest.approx(np.std(values, ddof=1))


def test_the_tool_resumes_in_processes_of_its_own(config):
    folder = Path('work_dirs/tiny/seed_3')
    assert main(['train', config, '--seed', '3', '--work-dir', str(folder), '--cfg-options',
                 'train_cfg.max_iters=1']) == 0
    records.SeedFolder(folder.parent, 3).update(
        trained=False, training=records.training_parts(load_config(config, [])))
    result = subprocess.run([sys.executable, str(ROOT / 'tools' / 'run_seeds.py'), config, '--seeds', '3'],
                            capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert ' --resume' in result.stdout and 'resumed epoch: 0, iter: 1' in result.stdout
    assert (folder / 'iter_2.pth').is_file() and table()['3']['status'] == 'done'


def test_against_another_config(config, machine, capsys):
    Path('other.py').write_text(Path(config).read_text().replace('lr=0.1', 'lr=0.2'))
    assert main(['seeds', 'other.py', '--seeds', '0', '1', '2']) == 0
    machine.scores = {seed: score + 0.02 * (seed + 1) for seed, score in machine.scores.items()}
    capsys.readouterr()
    assert main(['seeds', config, '--seeds', '0', '1', '--against', 'work_dirs/other', '--metrics', 'DSC_pooled']) == 0
    shown = capsys.readouterr().out
    assert '* DSC_pooled: too few seeds to show a difference between tiny and other (2; the smallest' in shown
    assert 'tiny − other: 3.00 points, 95 % interval ' in shown
    assert {path.name for path in Path('work_dirs/tiny').glob('comparisons.*')} == {
        'comparisons.csv', 'comparisons.json', 'comparisons.png'}
    run = ['seeds', config, '--seeds', '0', '--against']
    assert error_of(capsys, *run, 'absent') == '--against: no such folder: absent'
    assert error_of(capsys, *run, 'work_dirs').startswith('work_dirs has no tested seeds; give the --work-dir of')
    assert error_of(capsys, *run, 'work_dirs/tiny').startswith('--against: work_dirs/tiny is the folder of this config')
    assert error_of(capsys, *run, 'work_dirs/other', '--metrics', 'Dice').startswith(
        '--metrics Dice: not in the results; available: DSC_pooled, ')


@pytest.mark.parametrize('text', ['{"trained": tr', '[]', '\x00'])
def test_damaged_records_are_reported_and_kept(config, machine, capsys, text):
    assert main(['seeds', config, '--seeds', '0', '1']) == 0
    record = Path('work_dirs/tiny/seed_0/seed.json')
    record.write_text(text)
    machine.take(), capsys.readouterr()
    message = error_of(capsys, 'seeds', config, '--seeds', '0', '1')
    assert message.startswith('work_dirs/tiny/seed_0/seed.json cannot be read (')
    assert message.endswith('); restore it, or move the folder away to train the seed again')
    assert machine.take() == [] and record.read_text() == text
    assert main(['seeds', config, '--seeds', '1']) == 0
    assert 'note: seed 0 is not included: work_dirs/tiny/seed_0/seed.json cannot be read' in capsys.readouterr().err
    assert list(table()) == ['1', 'mean', 'sd', 'n']
