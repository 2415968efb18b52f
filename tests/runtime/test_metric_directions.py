"""The best checkpoint is the best one, whatever rule a base config left, and hooks wait for metrics that exist."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.model import BaseModel
from mmengine.runner import Runner

from mmkcla.errors import UserError
from mmkcla.runtime.checks.directions import check_monitors, set_rules
from mmkcla.runtime.hooks import AtomicCheckpointHook

HD95 = (18.2, 8.7, 12.0)  # pixels, after epochs 1, 2 and 3


class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(1, 1)

    def forward(self, inputs, mode='tensor'):
        return dict(loss=self.a(inputs).square().mean()) if mode == 'loss' else [inputs.sum()]


class Scores(BaseMetric):
    """Prescribed scores of each epoch."""

    default_prefix = ''

    def __init__(self, **scores):
        super().__init__()
        self.scores = {name: iter(values) for name, values in scores.items()}

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        return {name: next(values) for name, values in self.scores.items()}


def best(tmp_path, name, scores, **hook):
    loader = dict(dataset=[torch.ones(1)] * 2, batch_size=1, sampler=dict(type='DefaultSampler', shuffle=False),
                  collate_fn=lambda samples: dict(inputs=torch.stack(samples)))
    runner = Runner(
        Net(), str(tmp_path), train_dataloader=loader, val_dataloader=loader, val_cfg=dict(),
        train_cfg=dict(by_epoch=True, max_epochs=3), val_evaluator=Evaluator(Scores(**scores)),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)), log_level='ERROR', experiment_name=f'directions_{name}',
        default_hooks=dict(checkpoint=dict(type='mmkcla.AtomicCheckpointHook', interval=-1, save_last=False, **hook)),
        cfg=Config(dict(name=name)))
    runner.train()
    return sorted(path.name for path in Path(tmp_path).glob('best_*.pth'))


@pytest.mark.parametrize('hook', [dict(save_best='HD95_mean'), dict(save_best='HD95_mean', rule='less'),
                                  dict(save_best='HD95_mean', rule='greater'), dict(save_best=['HD95_mean'])])
def test_the_best_hd95_is_the_smallest(tmp_path, hook, request):
    assert best(tmp_path, request.node.name, dict(HD95_mean=HD95), **hook) == ['best_HD95_mean_epoch_2.pth']


def test_several_metrics_with_one_rule(tmp_path):
    found = best(tmp_path, 'several', dict(HD95_mean=HD95, DSC_pooled=(0.5, 0.4, 0.7)),
                 save_best=['HD95_mean', 'DSC_pooled'], rule='greater')
    assert found == ['best_DSC_pooled_epoch_3.pth', 'best_HD95_mean_epoch_2.pth']


def test_auto_takes_the_main_metric(tmp_path):
    scores = dict(HD95_mean=HD95, empty_truth=(3, 2, 1), DSC_pooled=(0.5, 0.9, 0.7))
    assert best(tmp_path, 'auto', scores, save_best='auto') == ['best_DSC_pooled_epoch_2.pth']
    with pytest.raises(UserError, match="save_best='auto': no metric of the validation is known"):
        best(tmp_path, 'auto_unknown', dict(score=(1, 2, 3)), save_best='auto')


def test_own_keys_and_unknown_metrics():
    assert AtomicCheckpointHook(save_best='my_own_score', greater_keys=['score']).rules == ['greater']
    assert AtomicCheckpointHook(save_best='my_own_score', rule='less').rules == ['less']
    with pytest.raises(UserError, match="default_hooks.checkpoint.rule='greater' or"):
        AtomicCheckpointHook(save_best='my_own_score')


def checkpoint(**hook):
    return Config(dict(default_hooks=dict(checkpoint=dict(type='CheckpointHook', **hook))))


@pytest.mark.parametrize(('metric', 'rule', 'expected', 'said'), [
    ('HD95_mean', 'greater', 'less', True), ('HD95_mean', None, 'less', False), ('mIoU', None, 'greater', False),
    ('EPE', None, 'less', False), ('D1', 'greater', 'less', True), ('mIoU', 'less', 'greater', True),
    ('coco/bbox_mAP', None, 'greater', False), ('my_own_score', 'less', 'less', False)])
def test_the_rule_of_a_config(metric, rule, expected, said, capsys):
    config = checkpoint(save_best=metric, **(dict(rule=rule) if rule else {}))
    set_rules(config)
    assert config.default_hooks.checkpoint.rule == expected
    line = capsys.readouterr().err
    assert (f"default_hooks.checkpoint.rule='{rule}' is replaced by '{expected}'" in line) is said
    assert bool(line) is said


def test_lists_and_auto():
    config = checkpoint(save_best=['mIoU', 'HD95_mean'], rule='greater')
    set_rules(config)
    assert config.default_hooks.checkpoint.rule == ['greater', 'less']
    for hook in (dict(save_best='auto'), dict(save_best=None), dict(save_best='x', less_keys=['x']), dict()):
        config = checkpoint(**hook)
        set_rules(config)
        assert 'rule' not in config.default_hooks.checkpoint
    with pytest.raises(UserError, match='rule has 3 entries, save_best has 2'):
        set_rules(checkpoint(save_best=['mIoU', 'mDice'], rule=['less'] * 3))
    with pytest.raises(UserError, match="of 'my_own_score' are better; set default_hooks.checkpoint.rule='greater' or"):
        set_rules(checkpoint(save_best='my_own_score'))


def test_early_stopping_and_schedules(capsys):
    config = Config(dict(
        custom_hooks=[dict(type='EMAHook'), dict(type='EarlyStoppingHook', monitor='HD95_mean')],
        param_scheduler=[dict(type='LinearLR'), dict(type='ReduceOnPlateauLR', monitor='DSC_pooled'),
                         dict(type='ReduceOnPlateauLR', monitor='loss')]))
    set_rules(config)
    assert config.custom_hooks[1].rule == 'less' and 'rule' not in config.custom_hooks[0]
    assert [part.get('rule') for part in config.param_scheduler] == [None, 'greater', 'less']
    assert "param_scheduler[1].rule='less' is replaced by 'greater'" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"custom_hooks\[1\].monitor='HD95_mean' is not a validation metric \(did you "
                                        r"mean 'HD95_pooled_mean'\?\), so the training would never stop early"):
        check_monitors(config, ['HD95_pooled_mean'])
    check_monitors(config, ['HD95_mean', 'DSC_pooled', 'loss'])
    with pytest.raises(UserError, match=r"param_scheduler\[1\].monitor='DSC_pooled' is not a validation metric, "
                                        r"and the training would end with an error"):
        check_monitors(config, ['HD95_mean', 'DSC_mean'])
