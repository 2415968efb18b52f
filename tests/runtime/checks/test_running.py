"""What a built training says about its settings: schedules, accumulation, single parameters, resumed values."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

from mmkcla.errors import UserError
from mmkcla.runtime.checks.run_length import RunLength
from mmkcla.runtime.checks.schedules import check_schedules
from mmkcla.runtime.runner import CheckedRunner

ROOT = Path(__file__).parents[3]
COSINE = dict(type='CosineAnnealingLR', T_max=4, by_epoch=True, end=4)


class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.frozen = nn.Linear(2, 2)
        self.frozen.requires_grad_(False)

    def forward(self, *inputs, mode='tensor'):
        return dict(loss=self.norm(self.layer1(torch.stack(inputs))).square().mean())


def train(folder, epochs=1, resume=None, scheduler=COSINE, **changes):
    wrapper = dict(optimizer=dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=1e-4))
    wrapper['optimizer'] |= changes.pop('optimizer', {})
    wrapper |= changes.pop('wrapper', {})
    options = dict(optim_wrapper=wrapper, param_scheduler=[scheduler] if isinstance(scheduler, dict) else scheduler,
                   train_cfg=dict(by_epoch=True, max_epochs=epochs), randomness=dict(seed=1)) | changes
    runner = CheckedRunner(
        model=Net(), work_dir=str(folder), resume=resume is not None, load_from=resume and str(resume),
        train_dataloader=dict(batch_size=2, dataset=[torch.ones(2) * i for i in range(8)],
                              sampler=dict(type='DefaultSampler', shuffle=False)),
        experiment_name=f'{folder.name}{torch.rand(1).item()}', cfg=Config(options), **options)
    runner.train()
    return runner


def test_a_resume_names_the_values_that_stay(tmp_path, capsys) -> None:
    train(tmp_path, 1)
    capsys.readouterr()
    checkpoint = tmp_path / 'epoch_1.pth'
    train(tmp_path, 2, checkpoint)
    assert 'resumed values stay' not in capsys.readouterr().err  # the same config, longer
    runner = train(tmp_path, 2, checkpoint, optimizer=dict(lr=0.5, weight_decay=0.), randomness=dict(seed=2),
                   scheduler=dict(COSINE, T_max=8, end=8))
    assert runner.optim_wrapper.param_groups[0]['initial_lr'] == 0.02
    line = next(line for line in capsys.readouterr().err.splitlines() if 'resumed values stay' in line)
    for part in ('weight_decay 0.0001 (config: 0.0)', 'lr 0.02 (config: 0.5)', 'param_scheduler.0.T_max 4 (config: 8)',
                 'param_scheduler.0.end 4 (config: 8)', 'seed 1 (config: 2)', f'load_from={checkpoint}'):
        assert part in line


def test_a_resume_with_other_types_is_refused(tmp_path) -> None:
    train(tmp_path, 1)
    checkpoint = tmp_path / 'epoch_1.pth'
    for changes, says in (
            (dict(wrapper=dict(optimizer=dict(type='AdamW', lr=0.01))), 'its optimizer is SGD, the config has '
             'AdamW'),
            (dict(scheduler=dict(type='MultiStepLR', milestones=[1])), 'its scheduler 0 is not MultiStepLR'),
            (dict(scheduler=[COSINE, COSINE]), 'it has 1 scheduler, the config has 2')):
        with pytest.raises(UserError, match=f'^cannot resume from {checkpoint}: {says}.*load_from='):
            train(tmp_path, 2, checkpoint, **changes)


def test_a_finished_training_says_so(tmp_path, capsys) -> None:
    train(tmp_path, 2)
    capsys.readouterr()
    train(tmp_path, 2, tmp_path / 'epoch_2.pth')
    assert 'is at epoch 2 of 2: the training is finished, nothing is left to train' in capsys.readouterr().err
    with pytest.raises(UserError, match='is at epoch 2, but train_cfg.max_epochs is 1: nothing is left to train'):
        train(tmp_path, 1, tmp_path / 'epoch_2.pth')


def test_accumulated_iterations_count(tmp_path, capsys) -> None:
    rule = dict(enable=True, base_batch_size=8)
    runner = train(tmp_path / 'a', wrapper=dict(accumulative_counts=4), auto_scale_lr=rule, scheduler=[])
    assert runner.optim_wrapper.param_groups[0]['lr'] == pytest.approx(0.02)  # 2 images × 4 = 8
    assert 'accumulative_counts=4: 4 iterations, 1 step of the optimizer' in capsys.readouterr().err
    runner = train(tmp_path / 'b', auto_scale_lr=rule, scheduler=[])
    assert runner.optim_wrapper.param_groups[0]['lr'] == pytest.approx(0.005)


def test_settings_of_single_parameters(tmp_path, capsys) -> None:
    keys = {'layr1': dict(lr_mult=0.1), 'frozen': dict(lr_mult=0.1), 'laye': dict(lr_mult=1.),
            'layer1': dict(lr_mult=2.)}
    train(tmp_path, wrapper=dict(paramwise_cfg=dict(custom_keys=keys, norm_decay_mult=0., dwconv_decay_mult=0.)))
    err = capsys.readouterr().err
    place = 'note: optim_wrapper.paramwise_cfg'
    for line in (f"{place}.custom_keys: 'layr1' matches no parameter (did you mean 'layer1'?)",
                 f"{place}.custom_keys: 'frozen' has no effect, since its parameters are frozen",
                 f"{place}.custom_keys: 'laye' has no effect, since a longer key matches all of its parameters",
                 f'{place}.dwconv_decay_mult has no effect: the model has no such trained parameters'):
        assert line in err.splitlines()
    assert err.count(place) == 4  # the norm and layer1 are there


EPOCHS, ITERATIONS = RunLength(True, 12, 1200, 100), RunLength(False, None, 1200, 100)


def notes(run=EPOCHS, scheduler=(), **config) -> list[str]:
    return check_schedules(Config(dict(param_scheduler=list(scheduler), train_cfg={}) | config), run)


@pytest.mark.parametrize(('scheduler', 'says'), [
    (dict(type='MultiStepLR', milestones=[8, 16]), 'the milestones 16 are not reached, since the run ends '
     'after 12 epochs'),
    (dict(type='StepLR', step_size=3, begin=12), 'begins after 12 epochs, but the run has 12 epochs: it has no effect'),
    (dict(type='LinearLR', by_epoch=False, end=5000), 'ends after 5000 iterations, but the run has 1200 iterations: '
     'the warm-up is not finished'),
    (dict(type='PolyLR', end=20), 'ends after 20 epochs, but the run has 12 epochs: its last values are not reached'),
    (dict(type='CosineAnnealingLR', T_max=6), 'T_max=6 is less than its 12 epochs: the value rises again '
     'after 6 epochs'),
    (dict(type='CosineAnnealingLR', T_max=24), 'T_max=24 is more than its 12 epochs: its last values are not reached'),
    (dict(type='CosineAnnealingLR', end=6), 'ends after 6 epochs of 12 epochs: the learning rate is constant '
     'from there'),
])
def test_schedules_that_do_not_fit(scheduler, says) -> None:
    line, = notes(scheduler=[scheduler])
    assert line.startswith(f'param_scheduler.0 ({scheduler["type"]})') and line.endswith(says)


KINDS = sorted(name for name in PARAM_SCHEDULERS.module_dict if not name.startswith('ReduceOn'))


@pytest.mark.parametrize('kind', KINDS)
def test_schedules_by_epoch_in_an_iteration_loop(kind) -> None:
    with pytest.raises(UserError, match=f'^param_scheduler.0 \\({kind}\\) counts epochs, but the training loop '):
        notes(ITERATIONS, [dict(type=kind)])
    assert notes(ITERATIONS, [dict(type=kind, by_epoch=False)]) == []
    assert notes(EPOCHS, [dict(type=kind)]) == notes(EPOCHS, [dict(type=kind, convert_to_iter_based=True)]) == []
    with pytest.raises(UserError, match='convert_to_iter_based=True needs by_epoch=True'):
        notes(ITERATIONS, [dict(type=kind, by_epoch=False, convert_to_iter_based=True)])


def test_a_cycle_that_is_too_short() -> None:
    with pytest.raises(UserError, match='total_steps=6 is less than the 12 epochs of the run, which would fail there'):
        notes(scheduler=[dict(type='OneCycleLR', eta_max=1, total_steps=6)])


def test_hooks_that_do_not_fit() -> None:
    hooks = dict(checkpoint=dict(type='CheckpointHook', interval=20, save_best='auto'))
    val = dict(val_cfg={}, val_dataloader=dict(batch_size=1))
    line, = notes(default_hooks=hooks, **val)
    assert line == ('default_hooks.checkpoint.interval=20 is more than the 12 epochs of the run: the only checkpoint '
                    'is the last one')
    assert notes(default_hooks=hooks)[1] == \
        "default_hooks.checkpoint.save_best='auto' has no effect: the run has no validation"
    assert notes(ITERATIONS, default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=1)))[0].startswith(
        'default_hooks.checkpoint counts epochs, but the training loop counts iterations: the only checkpoint is')
    assert notes(**val, train_cfg=dict(val_begin=13)) == [
        'train_cfg.val_begin=13 is after the run of 12 epochs: there is no validation']
    stop = [dict(type='EarlyStoppingHook', monitor='a', patience=5)]
    assert notes(custom_hooks=stop, **val, train_cfg=dict(val_interval=3)) == [
        'custom_hooks.0 (EarlyStoppingHook): patience=5 has no effect, since the run has 4 validations']
    assert notes(custom_hooks=stop) == ['custom_hooks.0 (EarlyStoppingHook) has no effect: the run has no validation']
    with pytest.raises(UserError, match=r'^custom_hooks.0 \(EMAHook\): begin_epoch=13 is after the end of the run'):
        notes(custom_hooks=[dict(type='EMAHook', begin_epoch=13)])


def test_shipped_configs_fit(capsys) -> None:
    for path in sorted((ROOT / 'configs').glob('[!_]*/*.py'))[::3]:
        config = Config.fromfile(path, import_custom_modules=False)
        loop = config.train_cfg
        run = (RunLength(True, loop.max_epochs, loop.max_epochs * 1000, 1000) if loop.get('max_epochs')
               else RunLength(False, None, loop.max_iters, 1000))
        assert check_schedules(config, run) == [], path
