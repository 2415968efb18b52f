"""Names and kinds of the entries of a config, compared with what reads them."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from mmkcla.errors import UserError
from mmkcla.runtime.checks import check_keys, check_settings
from mmkcla.runtime.checks.signatures import accepted
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import import_hosts, prepare_hosts

ROOT = Path(__file__).parents[3]
COINS = 'faster-rcnn_r18-kcla_fpn_coins'
SHIPPED = sorted(path for path in (ROOT / 'configs').glob('[!_]*/*.py'))


@pytest.fixture(scope='module', autouse=True)
def _hosts():
    import_hosts(['mmdet', 'mmseg', 'mmpretrain'], with_models=True)


def refusal(option: str, name: str = COINS) -> str:
    with pytest.raises(UserError) as error:
        config = load_config(name, [option])
        check_settings(config)
        prepare_hosts(config)
        check_keys(config)
    return str(error.value)


@pytest.mark.parametrize(('option', 'says'), [
    ('val_dataloader.batch_siz=4', "val_dataloader.batch_siz: a dataloader takes no 'batch_siz' (did you mean "
     "'batch_size'?)"),
    ('train_cfg.max_iter=4', "train_cfg.max_iter: IterBasedTrainLoop takes no 'max_iter' (did you mean 'max_iters'?)"),
    ('val_cfg.fp=True', "val_cfg.fp: ValLoop takes no 'fp' (did you mean 'fp16'?)"),
    ('train_dataloader.dataset.ann_fil=a', "train_dataloader.dataset.ann_fil: CocoDataset takes no 'ann_fil' (did you "
     "mean 'ann_file'?)"),
    ('train_dataloader.sampler.shufle=True', "train_dataloader.sampler.shufle: InfiniteSampler takes no 'shufle' (did "
     "you mean 'shuffle'?)"),
    ('val_dataloader.dataset.pipeline.1.keep_rati=True', "val_dataloader.dataset.pipeline.1.keep_rati: Resize takes no "
     "'keep_rati' (did you mean 'keep_ratio'?)"),
    ('val_evaluator.metrc=bbox', "val_evaluator.metrc: mmkcla.CocoMetric takes no 'metrc' (did you mean 'metric'?)"),
    ('model.rpn_head.anchor_generator.ratio=[1]', "model.rpn_head.anchor_generator.ratio: AnchorGenerator takes no "
     "'ratio' (did you mean 'ratios'?)"),
    ('model.rpn_head.loss_cls.loss_weigh=1', "model.rpn_head.loss_cls.loss_weigh: CrossEntropyLoss takes no "
     "'loss_weigh' (did you mean 'loss_weight'?)"),
    ('optim_wrapper.acumulative_counts=2', "optim_wrapper.acumulative_counts: OptimWrapper takes no "
     "'acumulative_counts' (did you mean 'accumulative_counts'?)"),
    ('optim_wrapper.optimizer.weight_deca=0', "optim_wrapper.optimizer.weight_deca: AdamW takes no 'weight_deca' (did "
     "you mean 'weight_decay'?)"),
    ('param_scheduler.1.eta_mi=0', "param_scheduler.1.eta_mi: CosineAnnealingLR takes no 'eta_mi' (did you mean "
     "'eta_min'?)"),
    ('default_hooks.checkpoint.intervall=1', "default_hooks.checkpoint.intervall: CheckpointHook takes no 'intervall' "
     "(did you mean 'interval'?)"),
    ('visualizer.vis_backend=[]', "visualizer.vis_backend: DetLocalVisualizer takes no 'vis_backend' (did you mean "
     "'vis_backends'?)"),
    ('env_cfg.cudnn_benchmrk=True', "env_cfg.cudnn_benchmrk: the environment takes no 'cudnn_benchmrk' (did you mean "
     "'cudnn_benchmark'?)"),
    ('env_cfg.mp_cfg.opencv_num_thread=1', "env_cfg.mp_cfg.opencv_num_thread: set_multi_processing takes no "
     "'opencv_num_thread' (did you mean 'opencv_num_threads'?)"),
    ('randomness.sed=1', "randomness.sed: set_randomness takes no 'sed' (did you mean 'seed'?)"),
    ('auto_scale_lr.base_batch=1', "auto_scale_lr.base_batch: the scaling takes no 'base_batch' (did you mean "
     "'base_batch_size'?)"),
    ('log_processor.windw_size=1', "log_processor.windw_size: LogProcessor takes no 'windw_size' (did you mean "
     "'window_size'?)"),
    ('visualizer=1', 'visualizer must be a dict, got 1'), ('model=text', "model must be a dict, got 'text'"),
    ('custom_hooks=dict(a=1)', "custom_hooks must be a list, got {'a': 1}"),
    ('resume=yes', '--cfg-options resume=yes is text, which counts as true; write True'),
    ('env_cfg=None', 'env_cfg must be a dict, got None'),
    ('default_hooks.logger=5', 'default_hooks.logger must be a dict with a type, got 5'),
    ('default_hooks.chekpoint=dict(interval=1)', "default_hooks.chekpoint has no type (did you "
     "mean 'checkpoint'?); give its class"),
    ('param_scheduler=[1]', 'param_scheduler.0 must be a dict with a type, got 1'),
    ('train_dataloader.dataset=5', 'train_dataloader.dataset must be a dict with a type, got 5'),
])
def test_what_is_not_taken(option, says) -> None:
    assert refusal(option) == says


def test_misspelled_entries_of_a_file(tmp_path, capsys) -> None:
    base = ROOT / 'configs' / 'demo' / 'resnet20_digits.py'
    for name, near in (('train_dataloder', 'train_dataloader'), ('val_evalutor', 'val_evaluator'),
                       ('optim_wraper', 'optim_wrapper'), ('custom_hook', 'custom_hooks')):
        path = tmp_path / 'child.py'
        path.write_text(f"_base_ = {str(base)!r}\n{name} = dict(a=1)\n")
        with pytest.raises(UserError) as error:
            check_settings(load_config(str(path), []))
        assert str(error.value) == f'config {path}: no run reads {name!r} (did you mean {near!r}?); rename it'
    path.write_text(f"_base_ = {str(base)!r}\nmodels = 1\nsize = 2\ncustom_imports = dict(imports=['json'])\n"
                    'optim_wraper = 1\n')
    check_settings(load_config(str(path), []))  # what it imports may read it
    assert "no run reads 'optim_wraper'" in capsys.readouterr().err


def test_shipped_configs_are_taken(capsys, monkeypatch) -> None:
    monkeypatch.setattr('logging.raiseExceptions', False)  # a logger of another test may write to its closed file
    for path in SHIPPED[::4]:
        config = Config.fromfile(path, import_custom_modules=False)
        check_settings(config)
        check_keys(config)
    assert len(SHIPPED) > 200
    assert capsys.readouterr().err == ''


def test_configs_of_the_hosts_are_taken() -> None:
    """One in each folder of the configs that the installed hosts bring."""
    import mmdet
    import mmpretrain
    import mmseg
    count = 0
    for host in (mmdet, mmseg, mmpretrain):
        folders = sorted((Path(host.__file__).parent / '.mim' / 'configs').glob('[!_]*'))
        for folder in folders[::5]:
            path = next(iter(sorted(folder.glob('*.py'))), None)
            if path is None:
                continue
            try:
                config = Config.fromfile(path, import_custom_modules=False)
            except (KeyError, OSError):  # some cannot be read by mmengine either
                continue
            if config.get('model') is not None:
                try:
                    check_settings(config)
                except UserError as error:  # a base file, which mmengine's runner would not take either
                    assert 'missing (or None)' in str(error), path
                try:
                    check_keys(config)
                    count += 1
                except UserError as error:  # no default_scope, or data sets of packages that are not installed
                    assert config.get('default_scope') is None or path.parent.name == 'blip2', (path, error)
    assert count > 20


class Base:
    def __init__(self, a, b=1):
        pass


class Forwards(Base):
    def __init__(self, c, **kwargs):
        super().__init__(**kwargs)


class Uses(Base):
    def __init__(self, c, **kwargs):
        kwargs.pop('d')
        super().__init__(**kwargs)


class Skips(Forwards):
    def __init__(self, **kwargs):
        super(Forwards, self).__init__(**kwargs)


class OfTorch(torch.nn.Module):
    def __init__(self, e, **kwargs):
        super().__init__(**kwargs)


@pytest.mark.parametrize(('part', 'names'), [
    (Base, {'a', 'b'}), (Forwards, {'a', 'b', 'c'}), (Uses, None), (Skips, None), (OfTorch, {'e'}),
    (lambda a, *, b: 0, {'a', 'b'}), (lambda **a: 0, None)])
def test_signatures(part, names) -> None:
    assert accepted(part) == names
