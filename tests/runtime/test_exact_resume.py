"""An interrupted training gives the same results as one that was not, bit for bit."""
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exact import Stopped, command, stop_after, train, write_classifier, write_detection, write_segmentation
from mmcv.transforms import BaseTransform
from mmdet.models.data_preprocessors import BatchSyncRandomResize
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmengine.hooks import EarlyStoppingHook
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from torch.utils.data import BatchSampler, DataLoader, Dataset

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.runtime.exact.random_state import random_state, set_random_state
from mmkcla.runtime.exact.samples import Draw, NumberedBatches, load_draws, number_samples
from mmkcla.runtime.exact.state import changes, rank_state, restore_rank, restore_run, run_state
from mmkcla.runtime.hooks import ExactResumeHook
from mmkcla.weights.plain_values import plain

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / 'tools' / 'dev'))
from crash_test import crash, differences, outcome  # noqa: E402

WORKERS = ['train_dataloader.num_workers=2', 'train_dataloader.persistent_workers=True']
NONE = ['train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False']
ACCUMULATED = ['optim_wrapper.accumulative_counts=4']
BF16 = ['optim_wrapper.type=mmkcla.Bf16OptimWrapper']
BY_EPOCH = ['default_hooks.checkpoint.by_epoch=True']
KINDS = {'classification': (write_classifier, 'iter_15.pth'), 'segmentation': (write_segmentation, 'iter_9.pth'),
         'detection': (write_detection, 'iter_4.pth')}


@TRANSFORMS.register_module(force=True)
class OwnNumbers(BaseTransform):
    def __init__(self, **_):
        self.generator = np.random.default_rng()

    def transform(self, results):
        return results


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    """Return the config of a kind, and the outcome of its uninterrupted training with some options."""
    configs, outcomes = {}, {}

    def get(kind, options=()):
        write, last = KINDS[kind]
        if kind not in configs:
            configs[kind] = write(tmp_path_factory.mktemp(kind))
        key = (kind, *options)
        if key not in outcomes:
            folder = configs[kind].parent / f'whole{len(outcomes)}'
            with pytest.MonkeyPatch.context() as patch:
                train(patch, configs[kind], folder, options)
            outcomes[key] = outcome(folder, 'epoch_3.pth' if tuple(options) == tuple(BY_EPOCH) else last)
        return configs[kind], outcomes[key]
    return get


@pytest.mark.parametrize(('kind', 'options', 'first', 'resumed', 'stops'), [
    ('classification', [], [], [], (3, 5, 12)),  # in an epoch, at its end before the validation, in the last one
    ('classification', [], WORKERS, NONE, (3, )),
    ('classification', ACCUMULATED, [], [], (3, 13)),  # between two steps of the optimizer
    ('classification', BF16, [], [], (7, )),
    ('classification', BY_EPOCH, [], [], (12, )),
    ('segmentation', [], [], [], (3, 4, 8)),
    ('detection', [], [], WORKERS, (2, )),
    pytest.param('classification', [], [], WORKERS, (3, 5, 12), marks=pytest.mark.slow),
    pytest.param('segmentation', [], WORKERS, WORKERS, (1, 2, 6), marks=pytest.mark.slow),
    pytest.param('segmentation', ACCUMULATED, WORKERS, NONE, (2, 3, 5), marks=pytest.mark.slow),
    pytest.param('segmentation', BF16, [], WORKERS, (2, 3, 5), marks=pytest.mark.slow),
    pytest.param('detection', [], WORKERS, NONE, (1, 2, 3), marks=pytest.mark.slow),
    pytest.param('detection', ACCUMULATED, [], [], (1, 2, 3), marks=pytest.mark.slow),
    pytest.param('detection', BF16, [], WORKERS, (2, ), marks=pytest.mark.slow),
])
def test_resumed_is_equal(uninterrupted, tmp_path, monkeypatch, kind, options, first, resumed, stops):
    config, expected = uninterrupted(kind, options)
    train(monkeypatch, config, tmp_path / 'out', [*options, *first], stops, resumed)
    last = 'epoch_3.pth' if options == BY_EPOCH else KINDS[kind][1]
    assert differences(expected, outcome(tmp_path / 'out', last)) == []


def test_old_checkpoint(uninterrupted, tmp_path, monkeypatch, capsys):
    """Without the entry, the epoch still continues in its middle, and a note says that the resume is not exact."""
    config, expected = uninterrupted('classification')
    path = tmp_path / 'old.pth'
    state = read_checkpoint(config.parent / 'whole0' / 'iter_12.pth')
    del state['exact_resume']
    torch.save(state, path)
    assert main(['train', str(config), '--no-checks', '--work-dir', str(tmp_path / 'out'), '--resume', str(path)]) == 0
    assert 'note: resume is not exact: the checkpoint has no entry exact_resume' in capsys.readouterr().err
    assert sorted(file.name for file in (tmp_path / 'out').glob('iter_*')) == sorted(
        f'iter_{number}.pth' for number in range(13, 16))
    learned = outcome(tmp_path / 'out', 'iter_15.pth')
    assert learned['optimizer']['state'][0]['step'] == 15
    assert learned['scalars']['train', 14]['lr'] == expected['scalars']['train', 14]['lr']


@pytest.mark.parametrize(('options', 'reason'), [
    (['train_dataloader.batch_size=3'], 'batches per epoch: 5 when it was saved, now 6'),
    (['train_dataloader.dataset.pipeline.3.type=OwnNumbers'], 'OwnNumbers has its own random numbers'),
])
def test_reasons(uninterrupted, tmp_path, capsys, options, reason):
    config, _ = uninterrupted('classification')
    checkpoint = config.parent / 'whole0' / 'iter_14.pth'
    arguments = ['train', config, '--no-checks', '--work-dir', tmp_path, '--resume', checkpoint, '--cfg-options',
                 *options, 'val_dataloader=None', 'val_cfg=None', 'val_evaluator=None']
    assert main([str(one) for one in arguments]) == 0
    line, = (one for one in capsys.readouterr().err.splitlines() if 'resume is not exact' in one)
    assert reason in line


@pytest.mark.parametrize('damage', [
    lambda state: state['ranks'][0].pop('numpy'),
    lambda state: state['ranks'][0].update(python=torch.zeros(3, dtype=torch.int64)),
    lambda state: state['ranks'][0].update(torch='text'),
    lambda state: state['ranks'][0].update(gradients={'weight': torch.zeros(2, 3)}),
    lambda state: state['ranks'][0].update(gradients=5),
    lambda state: state.update(ranks=7),
    lambda state: state.update(sampler_seed='text'),
    lambda state: state.update(attributes=None),
    lambda state: state.update(early_stopping=4),
    lambda state: state.update(validated='text'),
    lambda state: state.pop('batches'),
])
def test_damaged_entry(damage):
    loader = DataLoader(range(5), sampler=DefaultSampler(range(5), seed=1))
    runner = SimpleNamespace(train_loop=SimpleNamespace(dataloader=loader), model=torch.nn.Linear(2, 2), hooks=[],
                             optim_wrapper=SimpleNamespace())
    state = run_state(runner, [rank_state(runner)], 3)
    assert changes(runner, state, 'x.pth') == [] and restore_run(runner, state, 'x.pth') == 3
    restore_rank(runner, state, 'x.pth')
    damage(state)
    with pytest.raises(UserError, match='^cannot resume from x.pth: its entry exact_resume is damaged'):
        changes(runner, state, 'x.pth')
        restore_run(runner, state, 'x.pth')
        restore_rank(runner, state, 'x.pth')


def test_run_state():
    """Data order, early stopping, and the size of multi-scale training."""
    def runner(seed):
        loader = DataLoader(range(5), sampler=DefaultSampler(range(5), seed=seed))
        return SimpleNamespace(train_loop=SimpleNamespace(dataloader=loader), hooks=[EarlyStoppingHook('x', 'greater')],
                               model=torch.nn.ModuleList([BatchSyncRandomResize((8, 16), interval=2)]),
                               optim_wrapper=SimpleNamespace())

    one, other = runner(1), runner(2)
    one.model[0]._input_size, one.hooks[0].best_score, one.hooks[0].wait_count = (64, 96), 0.25, 3
    assert restore_run(other, plain(run_state(one, [rank_state(one)], 40)), 'x.pth') == 40
    assert other.train_loop.dataloader.sampler.seed == 1
    assert other.model[0]._input_size == (64, 96)
    assert (other.hooks[0].best_score, other.hooks[0].wait_count) == (0.25, 3)


@pytest.mark.parametrize(('validated', 'pending'), [(40, False), (30, True)])
def test_validation_before_the_checkpoint(validated, pending):
    """A checkpoint that was written after the validation does not repeat it."""
    loader = DataLoader(range(5), sampler=DefaultSampler(range(5), seed=1))
    runner = SimpleNamespace(train_loop=SimpleNamespace(dataloader=loader, exact=1), hooks=[], iter=40, _resume=True,
                             model=torch.nn.Linear(2, 2), optim_wrapper=SimpleNamespace(), _load_from='x.pth')
    hook = ExactResumeHook()
    assert not hook.validation_pending(runner)
    hook.after_load_checkpoint(runner, {'exact_resume': run_state(runner, [rank_state(runner)], validated)})
    hook.before_train(runner)
    assert hook.validation_pending(runner) is pending


def test_plain_values(tmp_path):
    torch.save(random_state(), tmp_path / 'state.pth')
    assert torch.load(tmp_path / 'state.pth', weights_only=True)['numpy'].shape == (624, )


def test_samples_do_not_depend_on_order():
    """Another number of workers, another history: the same sample."""
    class Noise(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index, random.random(), np.random.rand(), float(torch.rand(()))

    def batches(skip, workers):
        loader = DataLoader(Noise(), batch_size=2, num_workers=workers, collate_fn=list)
        number_samples(loader, seed=5).start(epoch=2, skip=skip)
        return list(loader)

    first = batches(0, 0)
    assert [sample[0] for batch in first for sample in batch] == list(range(6))
    assert len({value for batch in first for sample in batch for value in sample[1:]}) == 18
    for skip, workers in ((0, 2), (1, 0), (2, 2)):
        assert batches(skip, workers) == first[skip:]


def test_loading_leaves_the_random_numbers():
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    expected = random.random(), np.random.rand(), torch.rand(())
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    load_draws([1, 2], [Draw((0, 0, 0, 0), 0), Draw((0, 0, 0, 1), 1)])
    assert (random.random(), np.random.rand(), torch.rand(())) == expected


def test_random_state():
    random.gauss(0, 1), np.random.randn()  # both keep a second value
    state = random_state()
    expected = random.gauss(0, 1), random.random(), np.random.randn(), np.random.rand(), torch.rand(3).tolist()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    set_random_state(state)
    assert (random.gauss(0, 1), random.random(), np.random.randn(), np.random.rand(),
            torch.rand(3).tolist()) == expected


def test_endless_passes():
    """Batches are skipped over the end of a pass, which an own sampler may shuffle."""
    batches = NumberedBatches(BatchSampler(DefaultSampler(range(5), seed=1), 2, False), seed=0)
    batches.start(0, endless=True)
    iterator = iter(batches)
    expected = [next(iterator) for _ in range(10)]
    assert [draw.key[2] for draw in expected[3]] == [1, 1]
    batches.batches.sampler.set_epoch(0)
    batches.start(0, skip=7, endless=True)
    iterator = iter(batches)
    assert [next(iterator) for _ in range(3)] == expected[7:]


def test_killed_process(uninterrupted, tmp_path, monkeypatch):
    """After SIGKILL the worker processes end, and the next run starts at once, with the same results."""
    config, expected = uninterrupted('classification')
    work_dir = tmp_path / 'out'
    process = subprocess.Popen([sys.executable, '-m', 'mmkcla', *command(config, work_dir, WORKERS)],
                               env=os.environ | {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (work_dir / 'iter_3.pth').exists():
            assert process.poll() is None
            time.sleep(0.02)
        workers = children(process.pid)
        assert len(workers) >= 2
    finally:
        process.kill()
        process.wait()
    if sys.platform.startswith('linux'):
        end = time.monotonic() + 2  # torch's own check takes five seconds
        while any(map(alive, workers)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not any(map(alive, workers))
    assert process.returncode == -signal.SIGKILL
    train(monkeypatch, config, work_dir, resumed_only=True)
    assert differences(expected, outcome(work_dir, 'iter_15.pth')) == []


def children(parent):
    found = []
    for path in Path('/proc').glob('[0-9]*/stat'):
        try:
            fields = path.read_text().rpartition(')')[2].split()
        except OSError:  # ended in the meantime
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


def alive(process):
    try:
        return Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(1800)  # five trainings, each a new process
def test_crashes(tmp_path):
    report = crash('classification', tmp_path / 'crash', 3, random.Random(0))
    assert sum(report.kills.values()) == 3 and report.resumes == 3
    assert report.refused == [] and report.differences == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_killed_processes(uninterrupted, tmp_path):
    """Random numbers and accumulated gradients of every rank are restored."""
    config, _ = uninterrupted('classification')
    launch = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node=2', '--master-port=0', '--standalone',
              '-m', 'mmkcla']
    options = dict(env=os.environ | {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'}, start_new_session=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(name, resumed=False):
        arguments = command(config, tmp_path / name, ACCUMULATED, resumed)
        return subprocess.Popen([*launch, *arguments[:2], '--launcher', 'pytorch', *arguments[2:]], **options)

    assert start('whole').wait() == 0
    process = start('killed')
    while not (tmp_path / 'killed' / 'iter_2.pth').exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert start('killed', resumed=True).wait() == 0
    expected = outcome(tmp_path / 'whole', 'iter_9.pth')
    assert len(expected['random']['ranks']) == 2
    assert differences(expected, outcome(tmp_path / 'killed', 'iter_9.pth')) == []
    one, other = (rank['gradients'] for rank in outcome(tmp_path / 'whole', 'iter_2.pth')['random']['ranks'])
    assert one.keys() == other.keys() and len(differences(one, other)) > len(one) // 2


def test_stock_runner(uninterrupted, tmp_path, monkeypatch):
    """The loop in a runner of mmengine itself."""
    config = Config.fromfile(uninterrupted('classification')[0])
    config.train_cfg = dict(type='mmkcla.ExactEpochLoop', max_epochs=2)
    config.val_dataloader = config.val_cfg = config.val_evaluator = None
    config.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1, by_epoch=False)
    states = []
    for name, stops in (('whole', [None]), ('resumed', [7, None])):
        for number, stop in enumerate(stops):
            config.update(work_dir=str(tmp_path / name), resume=number > 0, load_from=None)
            with stop_after(monkeypatch, stop), contextlib.suppress(Stopped):
                Runner.from_cfg(config).train()
        states.append(torch.load(tmp_path / name / 'iter_10.pth', weights_only=False)['state_dict'])
    assert differences(*states) == []
