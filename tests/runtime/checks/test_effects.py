"""Settings without effect, weights that do not fit, and the config of a resumed run."""
import sys

import pytest
import torch
from mmengine.config import Config
from torch import nn

from mmkcla.errors import UserError
from mmkcla.runtime.checks.effects import unread_options, weight_notes
from mmkcla.runtime.checks.resumed_config import checkpoint_config, deleted_hint, other_settings
from mmkcla.runtime.checks.run_length import RunLength
from mmkcla.runtime.checks.schedules import check_schedules
from mmkcla.runtime.processes import run_process
from mmkcla.weights.matching import compare, initial_line, require

RUN = RunLength(True, 12, 1200, 100)


@pytest.mark.parametrize(('command', 'option', 'says'), [
    ('test', 'val_evaluator.metric=bbox', 'mmkcla test does not read val_evaluator; set test_evaluator.metric'),
    ('test', 'train_cfg.max_epochs=2', 'mmkcla test does not read train_cfg'),
    ('test', 'param_scheduler=[]', 'mmkcla test does not read param_scheduler'),
    ('test', 'val_cfg=None', 'mmkcla test does not read val_cfg; set test_cfg'),
    ('train', 'test_evaluator.metric=bbox', 'mmkcla train does not read test_evaluator; set val_evaluator.metric'),
    ('infer', 'optim_wrapper.optimizer.lr=1', 'mmkcla infer does not read optim_wrapper')])
def test_options_that_a_command_does_not_read(command, option, says) -> None:
    key = option.partition('=')[0]
    assert list(unread_options(command, [option])) == [f'--cfg-options {key} has no effect: {says}']


def test_options_that_are_read() -> None:
    assert list(unread_options('test', ['test_evaluator.metric=bbox', 'model.backbone.depth=18', 'val=1'])) == []
    assert list(unread_options('train', ['val_evaluator.metric=bbox', 'optim_wrapper.optimizer.lr=1'])) == []


def test_options_of_a_series_are_for_all_of_its_commands(monkeypatch, capfd) -> None:
    show = "import os; print(os.environ['MMKCLA_SHARED_OPTIONS'])"
    assert run_process([sys.executable, '-c', show])[0] == 0 and capfd.readouterr().out == '1\n'
    monkeypatch.setenv('MMKCLA_SHARED_OPTIONS', '1')
    assert list(unread_options('test', ['train_cfg.max_epochs=2'])) == []


def test_losses_of_weight_zero() -> None:
    def config(*weights):
        return Config(dict(model=dict(heads=[dict(loss=dict(type='L', loss_weight=weight)) for weight in weights])))
    assert list(weight_notes(config(1., 0.5))) == []
    assert list(weight_notes(config(1., 0))) == ['model.heads.1.loss.loss_weight = 0: no effect on the training']
    with pytest.raises(UserError, match='^every loss of the model has the weight 0 .*: nothing would be learned$'):
        list(weight_notes(config(0, 0.)))


def test_frozen_layers_without_weights() -> None:
    def lines(stages, load_from=None, **backbone):
        model = dict(backbone=dict(type='ResNet', frozen_stages=stages, **backbone))
        return list(weight_notes(Config(dict(model=model, load_from=load_from))))
    assert lines(-1) == lines(1, 'a.pth') == lines(1, pretrained='a') == []
    assert lines(1, init_cfg=dict(type='Pretrained', checkpoint='a.pth')) == []
    for init in (None, dict(type='Kaiming', layer='Conv2d')):
        line, = lines(1, init_cfg=init)
        assert line.startswith('model.backbone.frozen_stages=1 without pretrained weights: the frozen layers keep')


@pytest.mark.parametrize(('scheduler', 'optimizer', 'says'), [
    (dict(type='MultiStepLR', milestones=[]), {}, 'milestones=[] has no effect: the value never changes'),
    (dict(type='CosineAnnealingLR', T_max=12, eta_min=0.1), dict(type='SGD', lr=0.01), 'eta_min=0.1 is above the '
     'learning rate 0.01, which rises to it'),
    (dict(type='LinearMomentum', end=12), dict(type='SGD', lr=0.01), 'has no effect: the momentum of SGD is 0')])
def test_schedules_without_effect(scheduler, optimizer, says) -> None:
    config = Config(dict(param_scheduler=[scheduler], train_cfg={}, optim_wrapper=dict(optimizer=optimizer)))
    lines = check_schedules(config, RUN)
    assert [line for line in lines if line.endswith(says)]


def test_validation_and_checkpoints_beyond_the_run() -> None:
    hook = dict(type='CheckpointHook', interval=1, save_begin=13)
    config = Config(dict(train_cfg=dict(val_interval=20), val_cfg={}, val_dataloader=dict(batch_size=1),
                         default_hooks=dict(checkpoint=hook)))
    assert check_schedules(config, RUN) == [
        'train_cfg.val_interval=20 is more than the 12 epochs of the run: the only validation is at the end',
        'default_hooks.checkpoint.save_begin=13 is after the run of 12 epochs: no checkpoint is written but the last '
        'one']


def test_weights_that_cover_little_of_a_model() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(6)))
    state = model.state_dict()
    assert initial_line(compare(model, state), 'a.pth') is None
    report = compare(model, {name: state[name] for name in list(state)[:5]})
    require(report, 'most', 'a.pth')
    assert initial_line(report, 'a.pth') == (
        'checkpoint a.pth: 7 of 12 entries of the model are not in it or have another shape; they keep their initial '
        'values: 2.bias, 3.weight, 3.bias and 4 more')
    few = compare(model, {'0.weight': torch.zeros(2, 2)})
    require(few, 'some', 'a.pth')
    with pytest.raises(UserError, match=r'^checkpoint a.pth has 1 of the 12 entries of the model .*--allow-partial$'):
        require(few, 'most', 'a.pth')


TEXT = '''
train_dataloader = dict(batch_size=2, dataset=dict(type=open('x').read()))
optim_wrapper = dict(accumulative_counts=2, optimizer=dict(type='Adam', lr=0.1), paramwise_cfg=dict(norm_decay_mult=0.))
'''


def test_the_config_of_a_resumed_run(tmp_path) -> None:
    saved = checkpoint_config(dict(meta=dict(cfg=TEXT)))
    assert saved['train_dataloader']['batch_size'] == 2  # nothing was opened
    same = dict(train_dataloader=dict(batch_size=2), optim_wrapper=saved['optim_wrapper'])
    assert other_settings(Config(same), saved, 'a.pth') is None
    new = dict(train_dataloader=dict(batch_size=4), optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.5)))
    assert other_settings(Config(new), saved, 'a.pth') == (
        "the run of a.pth had other settings: train_dataloader.batch_size 2 (config: 4), optim_wrapper."
        "accumulative_counts 2 (config: None), optim_wrapper.optimizer.type 'Adam' (config: 'AdamW'), "
        'optim_wrapper.paramwise_cfg.norm_decay_mult 0.0 (config: None)')
    for text in ('', 'a = (', None, 5, 'f(1)\na.b = 1'):
        assert checkpoint_config(dict(meta=dict(cfg=text))) == {}
    assert other_settings(Config(new), {}, 'a.pth') is None
    assert deleted_hint(Config(dict(default_hooks=dict(checkpoint=dict(max_keep_ckpts=1))))) == \
        '; copy the file first, since max_keep_ckpts=1 lets this run delete it'
    assert deleted_hint(Config({})) == ''


def test_the_demo_without_data_names_both_commands(tmp_path) -> None:
    from mmkcla.datasets.segmentation.binary_seg import _how_to_create
    assert _how_to_create(tmp_path / 'isic' / 'images' / 'train') == 'create it with mmkcla data'
    line = _how_to_create(tmp_path / 'coins_isic2017' / 'images' / 'train')
    assert line == ('create it with "mmkcla data samples --out data/raw/coins_isic2017", then "mmkcla data isic2017 '
                    f'data/raw/coins_isic2017 --out {tmp_path}/coins_isic2017"')
