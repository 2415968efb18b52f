"""What --resume says to training states that cannot be used, through the command: one line each, no traceback."""
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MessageHub
from slow_training import PARTS, write_training
from tiny import error_of

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.runtime.hooks import curves
from mmkcla.weights import addresses
from mmkcla.weights.plain_values import plain

MORE = '''
optim_wrapper = dict(optimizer=dict(type='{optimizer}', lr=0.01{options}))
param_scheduler = [dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=3),
                   dict(type='MultiStepLR', milestones=[1, 2], by_epoch=True)]
custom_hooks = [dict(type='EMAHook')]
'''
PRETTY_TEXT = Config.pretty_text
exec(PARTS, {'__name__': 'slow_parts'})  # one module for all folders


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Each run is that of a new process, as far as the message hub goes, and draws nothing."""
    MessageHub._instance_dict.clear()
    monkeypatch.setattr(curves, 'draw_curves', lambda *_: None)
    monkeypatch.setattr(Config, 'pretty_text', property(lambda config: ''))  # formatting takes most of the time


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Return what trains two epochs of four iterations, once for each optimizer: the work dir."""
    folder = tmp_path_factory.mktemp('trained')
    done = {}

    def get(optimizer='AdamW', options=''):
        if (optimizer, options) not in done:
            work_dir = folder / f'w{len(done)}'
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(curves, 'draw_curves', lambda *_: None)
                patch.setattr(Config, 'pretty_text', PRETTY_TEXT)  # which the checkpoints store
                assert main(['train', str(write(folder, optimizer, options, length=2)), '--work-dir', str(work_dir),
                             '--no-checks']) == 0
            done[optimizer, options] = work_dir
        return done[optimizer, options]
    return get


def write(folder: Path, optimizer='AdamW', options='', length=3) -> Path:
    return write_config(folder, MORE.format(optimizer=optimizer, options=options), length=length)


def write_config(folder: Path, more: str, **options) -> Path:
    config = write_training(folder, seconds=0, **options)
    (folder / 'slow_parts.py').unlink()
    config.write_text(config.read_text().replace("custom_imports = dict(imports=['slow_parts'])", '') + more)
    return config


@pytest.fixture
def copy(trained, tmp_path):
    """Return what copies a finished training: the work dir and a config that goes on for one more epoch."""
    def get(optimizer='AdamW', options=''):
        shutil.copytree(trained(optimizer, options), tmp_path / 'w')
        (tmp_path / 'w' / 'last_checkpoint').write_text(str(tmp_path / 'w' / 'epoch_2.pth'))
        return tmp_path / 'w', write(tmp_path)
    return get


def change(path: Path, damage) -> None:
    checkpoint = read_checkpoint(path)
    damage(checkpoint)
    torch.save(checkpoint, path)


def put(*place_and_value):
    *place, last, value = place_and_value

    def damage(checkpoint):
        part = checkpoint
        for key in place:
            part = part[key]
        if value is KeyError:
            del part[last]
        else:
            part[last] = value
    return damage


def both(*damages):
    return lambda checkpoint: [damage(checkpoint) for damage in damages]


GROUP = ('optimizer', 'param_groups', 0)
STATE = ('optimizer', 'state', 0)
INFO = ('message_hub', 'runtime_info')
EXACT = 'exact_resume'
UNUSABLE = {
    'no optimizer': (put('optimizer', KeyError),
                     'it has no optimizer state, as best_* and published checkpoints do not'),
    'nan': (put(*STATE, 'exp_avg', torch.full((1, 2), math.nan)),
            'its optimizer.state.0.exp_avg is nan; expected finite'),
    'inf': (put(*STATE, 'exp_avg_sq', torch.full((1, 2), math.inf)), 'its optimizer.state.0.exp_avg_sq is nan'),
    'shape': (put(*STATE, 'exp_avg', torch.zeros(3)),
              'its optimizer.state.0.exp_avg is a tensor of shape (3,); expected a tensor of shape (1, 2)'),
    'text for a tensor': (put(*STATE, 'exp_avg', 'x'), "its optimizer.state.0.exp_avg is 'x'; expected a tensor"),
    'text for a step': (put(*STATE, 'step', 'x'), "its optimizer.state.0.step is 'x'; expected"),
    'no moment': (put(*STATE, 'exp_avg', KeyError), 'its optimizer.state.0 has no exp_avg'),
    'foreign parameter': (put('optimizer', 'state', 7, {}), 'its optimizer.state is a dict; expected no entry [7]'),
    'no groups': (put('optimizer', 'param_groups', KeyError), 'its optimizer.state.param_groups is None; expected'),
    'no state': (put('optimizer', 'state', KeyError), 'its optimizer.state is None; expected a dict of dicts'),
    'no lr': (put(*GROUP, 'lr', KeyError), 'its optimizer.param_groups[0] has no lr'),
    'no eps': (put(*GROUP, 'eps', KeyError), 'its optimizer.param_groups[0] has no eps'),
    'no params': (put(*GROUP, 'params', KeyError), 'its optimizer.param_groups[0].params is None'),
    'text for lr': (put(*GROUP, 'lr', 'x'), "its optimizer.param_groups[0].lr is 'x'; expected a number of at least 0"),
    'text for betas': (put(*GROUP, 'betas', ('x', 0.9)), "its optimizer.param_groups[0].betas is ('x', 0.9); expected"),
    'one beta': (put(*GROUP, 'betas', (0.9, )), 'its optimizer.param_groups[0].betas is (0.9,); expected (0.9, 0.999)'),
    'epoch text': (put('meta', 'epoch', '2'), "its meta.epoch is '2'; expected an integer of at least 0"),
    'epoch negative': (put('meta', 'epoch', -1), 'its meta.epoch is -1; expected an integer of at least 0'),
    'epoch bool': (put('meta', 'epoch', True), 'its meta.epoch is True; expected an integer of at least 0'),
    'epoch missing': (put('meta', 'epoch', KeyError), 'its meta.epoch is None; expected an integer of at least 0'),
    'epoch huge': (put('meta', 'epoch', 2 ** 80), 'its meta.epoch is 1208925819614629174706176; expected an integer'),
    'epoch large': (put('meta', 'epoch', 10 ** 9), 'its meta.epoch is 1000000000; expected at most meta.iter, 8'),
    'epoch other': (put('meta', 'epoch', 5),
                    'its meta.epoch is 5; expected 1 or one more, as message_hub.runtime_info'),
    'iter text': (put('meta', 'iter', '8'), "its meta.iter is '8'; expected an integer of at least 0"),
    'iter negative': (put('meta', 'iter', -8), 'its meta.iter is -8; expected an integer of at least 0'),
    'iter bool': (put('meta', 'iter', False), 'its meta.iter is False; expected an integer of at least 0'),
    'iter float': (put('meta', 'iter', 8.), 'its meta.iter is 8.0; expected an integer of at least 0'),
    'iter missing': (put('meta', 'iter', KeyError), 'its meta.iter is None; expected an integer of at least 0'),
    'iter large': (put('meta', 'iter', 10 ** 9), 'its meta.iter is 1000000000; expected 7 or one more, as message_hub'),
    'iter zero': (put('meta', 'iter', 0), 'its meta.epoch is 2; expected at most meta.iter, 0'),
    'meta missing': (put('meta', KeyError), 'its meta is None; expected a dict'),
    'seed': (put('meta', 'seed', 'x'), "its meta.seed is 'x'; expected an integer below 2**32"),
    'schedules a number': (put('param_schedulers', 3), 'its param_schedulers is 3; expected a list'),
    'schedule a text': (put('param_schedulers', 0, 'x'), 'its param_schedulers is a list; expected a list of dicts'),
    'schedule base': (put('param_schedulers', 0, 'base_values', ['x']),
                      "its scheduler 0 has base_values=['x']; expected"),
    'schedule bases': (put('param_schedulers', 0, 'base_values', [1., 1.]),
                       'its scheduler 0 has base_values=[1.0, 1.0]'),
    'schedule step text': (put('param_schedulers', 1, 'last_step', '2'), "its scheduler 1 has last_step='2'; expected"),
    'schedule step large': (put('param_schedulers', 1, 'last_step', 99),
                            'its scheduler 1 has last_step=99; expected at most meta.iter, 8'),
    'schedule step negative': (put('param_schedulers', 1, '_global_step', -5), 'its scheduler 1 has _global_step=-5'),
    'schedule end text': (put('param_schedulers', 0, 'end', 'x'), "its scheduler 0 has end='x'; expected 3"),
    'schedule nan': (put('param_schedulers', 0, '_last_value', [math.nan]),
                     'its param_schedulers[0]._last_value[0] is nan'),
    'milestones': (put('param_schedulers', 1, 'milestones', {'x': 1}),
                   "its scheduler 1 has milestones={'x': 1}; expected"),
    'hub missing': (put('message_hub', KeyError), 'its message_hub is None; expected a dict'),
    'hub part': (put('message_hub', 'log_scalars', KeyError), 'its message_hub.log_scalars is None; expected a dict'),
    'hub scalar': (put('message_hub', 'log_scalars', 'train/loss', 'x'),
                   "its message_hub.log_scalars.train/loss is 'x'; expected a history of numbers"),
    'hub iter': (put(*INFO, 'iter', 'x'),
                 "its message_hub.runtime_info.iter is 'x'; expected an integer of at least 0"),
    'hub skipped': (put(*INFO, 'non_finite_skipped', 'x'), "its message_hub.runtime_info.non_finite_skipped is 'x'"),
    'hub path': (put(*INFO, 'last_ckpt', 3), 'its message_hub.runtime_info.last_ckpt is 3; expected a path'),
    'hub keys': (put('message_hub', 'resumed_keys', 'train/loss', 1), 'its message_hub.resumed_keys.train/loss is 1'),
    'random': (put(EXACT, 'ranks', 0, 'torch', 'x'), 'its entry exact_resume is damaged (AttributeError)'),
    'no random': (put(EXACT, 'ranks', 0, 'numpy', KeyError), 'its entry exact_resume is damaged (KeyError)'),
    'device': (put(EXACT, 'ranks', 0, 'cuda', ['x']), 'its entry exact_resume is damaged (AttributeError)'),
    'validated': (put(EXACT, 'validated', 99), 'its entry exact_resume is damaged (ValueError)'),
    'done': (put(EXACT, 'done', -1), 'its entry exact_resume is damaged (ValueError)'),
    'entry': (put(EXACT, 'x'), 'its entry exact_resume is damaged (TypeError)'),
    'no weights': (put('state_dict', KeyError), 'it has no weights (state_dict)'),
    'ema shape': (put('ema_state_dict', 'module.line.weight', torch.zeros(3)),
                  'its ema_state_dict has a tensor of shape (3,) for module.line.weight; expected a tensor'),
    'ema name': (put('ema_state_dict', 'module.line.weight', KeyError), 'its ema_state_dict has None for module.line'),
    'ema text': (put('ema_state_dict', 'x'), "its ema_state_dict is 'x'; expected a dict"),
}


@pytest.mark.parametrize('name', UNUSABLE)
def test_an_unusable_state(copy, capsys, name):
    """A named file is refused."""
    work_dir, config = copy()
    damage, message = UNUSABLE[name]
    newest = work_dir / 'epoch_2.pth'
    change(newest, damage)
    assert error_of(capsys, 'train', config, '--work-dir', work_dir.parent / 'named', '--no-checks', '--resume',
                    newest).startswith(f'cannot resume from {newest}: {message}')


@pytest.mark.parametrize('name', ['no optimizer', 'shape', 'no eps', 'iter large', 'schedule base', 'random',
                                  'ema shape'])
def test_the_checkpoint_before_is_taken(copy, capsys, name):
    """Without a named file, an unusable one is reported."""
    work_dir, config = copy()
    damage, message = UNUSABLE[name]
    newest = work_dir / 'epoch_2.pth'
    change(newest, damage)
    assert main(['train', str(config), '--work-dir', str(work_dir), '--no-checks', '--resume']) == 0
    shown = capsys.readouterr()
    line, = (line for line in shown.err.splitlines() if 'skipped' in line)
    assert line.startswith(f'note: --resume: cannot resume from {newest}: {message}')
    assert shown.out.count('rank 0: loss') == 8 and 'Traceback' not in shown.err  # two of three epochs
    assert read_checkpoint(work_dir / 'epoch_3.pth')['meta']['iter'] == 12


def test_all_unusable(copy, capsys):
    work_dir, config = copy()
    for number in (1, 2):
        change(work_dir / f'epoch_{number}.pth', put('meta', 'iter', -1))
    assert error_of(capsys, 'train', config, '--work-dir', work_dir, '--no-checks', '--resume') == (
        f'--resume: no checkpoint in {work_dir} can be used (epoch_2.pth, epoch_1.pth); restore one, or choose another '
        '--work-dir to start from the beginning')


SGD = "optim_wrapper['optimizer'].update(type='SGD', momentum=0.9)"
OTHERS = {
    'SGD to AdamW': ('SGD', '', 'its optimizer is SGD, the config has AdamW'),
    'Adam to AdamW': ('Adam', '', 'its optimizer is Adam, the config has AdamW'),
    'Adam to SGD': ('Adam', SGD, 'its optimizer is Adam, the config has SGD'),
    'AdamW to Adam': ('AdamW', "optim_wrapper['optimizer']['type'] = 'Adam'",
                      'its optimizer is AdamW, the config has Adam'),
    'groups': ('AdamW', "optim_wrapper['paramwise_cfg'] = dict(bias_lr_mult=2)",
               'it has 1 parameter group, the config makes 2'),
    'no EMA': ('AdamW', 'custom_hooks = []', 'its weights are averages (EMA), and the config has no EMAHook'),
    'schedules': ('AdamW', 'param_scheduler = []', 'it has 2 schedulers, the config has 0'),
    'other schedules': ('AdamW', "param_scheduler[1] = dict(type='ExponentialLR', gamma=0.9, by_epoch=True)",
                        'its scheduler 1 is not ExponentialLR'),
}


@pytest.mark.parametrize('recorded', ['entry', 'config', 'keys'])
@pytest.mark.parametrize('name', OTHERS)
def test_another_config(copy, capsys, name, recorded):
    """Refused also without a named file: the checkpoint before is of the same run. The class of the optimizer is in the
    entry of the checkpoint, or only in the stored config, or only its settings are known."""
    run, more, message = OTHERS[name]
    work_dir, config = copy(run)
    config.write_text(f'{config.read_text()}\n{more}\n')
    if recorded != 'entry':
        change(work_dir / 'epoch_2.pth', put(EXACT, 'optimizers', KeyError))
    if recorded == 'keys':
        change(work_dir / 'epoch_2.pth', put('meta', 'cfg', KeyError))
        if 'optimizer' in message:
            message = 'its optimizer '
    line = error_of(capsys, 'train', config, '--work-dir', work_dir, '--no-checks', '--resume')
    assert line.startswith(f'cannot resume from {work_dir / "epoch_2.pth"}: {message}')
    assert line.endswith(f'--cfg-options load_from={work_dir / "epoch_2.pth"}')


def test_beyond_the_run(copy, capsys):
    work_dir, config = copy()
    assert error_of(capsys, 'train', config, '--work-dir', work_dir, '--no-checks', '--resume', '--cfg-options',
                    'train_cfg.max_epochs=1') == (
        f'{work_dir}/epoch_2.pth is at epoch 2, but train_cfg.max_epochs is 1: nothing is left to train; set '
        'train_cfg.max_epochs to more than 2')


@pytest.mark.parametrize('kind', ['ReduceOnPlateauLR', 'CosineAnnealingLR', 'OneCycleLR', 'StepLR', 'PolyLR'])
@pytest.mark.parametrize('optimizer', ['SGD', 'Adam', 'AdamW', 'RMSprop', 'Adagrad', 'NAdam', 'Adadelta', 'ASGD',
                                       'Rprop', 'Adamax', 'RAdam'])
def test_valid_states_are_accepted(tmp_path, capsys, kind, optimizer):
    """No false alarm: what a training has written is resumed, and the values of the config are found unchanged."""
    if kind != 'StepLR' and optimizer != 'AdamW':
        pytest.skip('each optimizer with one schedule, each schedule with one optimizer')
    options = {'ReduceOnPlateauLR': "monitor='toy/error'", 'CosineAnnealingLR': 'T_max=3', 'OneCycleLR':
               'eta_max=0.1, total_steps=12, by_epoch=False', 'StepLR': 'step_size=1', 'PolyLR': 'end=3'}[kind]
    config = write_config(tmp_path, f'\noptim_wrapper = dict(optimizer=dict(type={optimizer!r}, lr=0.001))\n'
                          f'param_scheduler = [dict(type={kind!r}, {options})]\n', length=2)
    run = ['train', str(config), '--work-dir', str(tmp_path / 'w'), '--no-checks']
    assert main(run) == 0
    MessageHub._instance_dict.clear()
    capsys.readouterr()
    (tmp_path / 'w' / 'epoch_2.pth').unlink()
    assert main([*run, '--resume']) == 0
    shown = capsys.readouterr()
    assert shown.out.count('rank 0: loss') == 4  # one of two epochs
    assert [line for line in shown.err.splitlines() if 'skipped' in line or 'resumed values stay' in line] == []


def test_the_checkpoint_is_read_once(copy, monkeypatch):
    """Both the file and its content: nothing keeps them while the training runs."""
    work_dir, config = copy()
    read = []
    original = addresses.read_checkpoint
    monkeypatch.setattr(addresses, 'read_checkpoint', lambda path: (read.append(Path(path).name), original(path))[1])
    assert main(['train', str(config), '--work-dir', str(work_dir), '--no-checks', '--resume']) == 0
    assert read == ['epoch_2.pth']


def test_changed_length_of_an_epoch(copy, capsys):
    """The place in the epoch is stored: epochs before may have had another length."""
    work_dir, config = copy()
    run = ['train', str(config), '--work-dir', str(work_dir), '--no-checks', '--resume', '--cfg-options',
           'train_dataloader.batch_size=4', 'default_hooks.checkpoint.by_epoch=False']
    assert main([*run, 'train_cfg.max_epochs=3']) == 0  # one epoch of two iterations
    assert read_checkpoint(work_dir / 'iter_9.pth')[EXACT]['done'] == 1
    for name in ('iter_10.pth', 'last_checkpoint'):
        (work_dir / name).unlink()
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'iter_9.pth'))
    capsys.readouterr()
    MessageHub._instance_dict.clear()
    assert main([*run, 'train_cfg.max_epochs=3']) == 0
    assert 'resume is not exact' not in capsys.readouterr().err
    assert read_checkpoint(work_dir / 'iter_10.pth')['meta']['iter'] == 10
    assert not (work_dir / 'iter_11.pth').exists()


def test_plain_states_are_read_back(copy):
    work_dir, _ = copy()
    saved = read_checkpoint(work_dir / 'epoch_2.pth')
    assert saved[EXACT]['optimizers'] == {'': 'AdamW'} and plain(saved[EXACT]['done']) == 0
    assert isinstance(saved['message_hub']['log_scalars']['train/loss'].data[0], np.ndarray)
