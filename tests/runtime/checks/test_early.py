"""What is found before data sets are built, and what a training prints at its start."""
import pytest
import torch
from tiny import KCLA, error_of, write_coco, write_detector

from mmkcla.cli import main

BACKBONE = 'model.backbone.init_cfg'
TWO_STEPS = ('train_cfg=dict(_delete_=True,by_epoch=False,max_iters=2,val_interval=2)', 'param_scheduler=[]',
             'default_hooks.checkpoint=None')


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A detector whose annotations are no JSON: an error in front of it is found before they are read."""
    monkeypatch.chdir(tmp_path)
    write_coco(tmp_path / 'coco')
    (tmp_path / 'coco' / 'ann.json').write_text('{')
    torch.save({'state_dict': {'w': torch.ones(1)}}, tmp_path / 'cut.pth')
    whole = (tmp_path / 'cut.pth').read_bytes()
    (tmp_path / 'cut.pth').write_bytes(whole[:-100])
    torch.save({'state_dict': {'w': torch.tensor([float('nan')])}}, tmp_path / 'nan.pth')
    torch.save({}, tmp_path / 'empty.pth')
    return write_detector(tmp_path / 'det.py', tmp_path / 'coco', KCLA)


@pytest.mark.parametrize(('options', 'says'), [
    (['load_from=no.pth'], 'load_from: checkpoint no.pth does not exist'),
    (['load_from=cut.pth'], 'load_from: checkpoint cut.pth is truncated'),
    (['load_from=nan.pth'], 'load_from: checkpoint nan.pth'),
    (['load_from=empty.pth'], 'load_from: empty.pth: the checkpoint contains no weights'),
    (["load_from='torchvision://resnet51'"], "load_from: checkpoint torchvision://resnet51: unknown model name "
                                             "'resnet51' (did you mean 'resnet50'?)"),
    (["load_from='ftp://a/b.pth'"], 'load_from: checkpoint ftp://a/b.pth: unknown scheme'),
    ([f"{BACKBONE}=dict(type='Pretrained',checkpoint='no.pth')"],
     f'{BACKBONE}.checkpoint: checkpoint no.pth does not exist'),
    ([f"{BACKBONE}=[dict(type='Kaiming',layer='Conv2d'),dict(type='Pretrained',checkpoint='cut.pth')]"],
     f'{BACKBONE}.1.checkpoint: checkpoint cut.pth is truncated'),
    (['train_dataloader.dataset.pipeline.1.type=LoadAnnotation'],
     "train_dataloader.dataset.pipeline.1: type='LoadAnnotation' is not in the transform registry: did you mean"),
    (['model.rpn_head.loss_cls.type=CrossEntropyLos'],
     "model.rpn_head.loss_cls: type='CrossEntropyLos' is not in the model registry: did you mean"),
    (['model.train_cfg.rpn.assigner.type=MaxIoUAssigne'],
     "model.train_cfg.rpn.assigner: type='MaxIoUAssigne' is not in the task util registry: did you mean"),
    (['optim_wrapper.optimizer.type=SGDD'],
     "optim_wrapper.optimizer: type='SGDD' is not in the optimizer registry: did you mean mmengine.SGD"),
    (["param_scheduler=[dict(type='MultiStepL',milestones=[1])]"],
     "param_scheduler.0: type='MultiStepL' is not in the parameter scheduler registry: did you mean"),
    (["custom_hooks=[dict(type='EMAHok')]"],
     "custom_hooks.0: type='EMAHok' is not in the hook registry: did you mean mmengine.EMAHook"),
    (["visualizer.vis_backends=[dict(type='LocalVisBackendd')]"],
     "visualizer.vis_backends.0: type='LocalVisBackendd' is not in the vis_backend registry: did you mean"),
    (['val_evaluator.type=CocoMetrik'], "val_evaluator: type='CocoMetrik' is not in the metric registry: did you mean"),
])
def test_found_before_the_annotations(config, capsys, options, says):
    assert error_of(capsys, 'train', config, '--work-dir', 'out', '--cfg-options', *options).startswith(says)


def test_resumed_checkpoint_comes_first(config, capsys):
    assert error_of(capsys, 'train', config, '--work-dir', 'out', '--resume', 'cut.pth').startswith(
        'checkpoint cut.pth is truncated')
    assert error_of(capsys, 'test', config, 'cut.pth').startswith('checkpoint cut.pth is truncated')


def test_the_annotations_are_next(config, capsys):
    assert 'ann.json' in error_of(capsys, 'train', config, '--work-dir', 'out')


def test_terminal_of_a_training(config, capfd, tmp_path):
    """Environment, config and hooks are in the log file only; the terminal names it."""
    (tmp_path / 'good').mkdir()
    write_coco(tmp_path / 'good' / 'coco')
    good = write_detector(tmp_path / 'good.py', tmp_path / 'good' / 'coco', KCLA)
    assert main(['train', str(good), '--work-dir', 'out', '--cfg-options', *TWO_STEPS]) == 0
    shown = capfd.readouterr()
    lines = (shown.out + shown.err).splitlines()
    log = next((tmp_path / 'out').glob('*/*.log'))
    assert sum(str(log) in line for line in lines) == 1
    assert len(lines) < 35 and not any('index created' in line for line in lines)
    assert sum('Average Precision' in line for line in lines) == 6  # the table of results is shown
    text = log.read_text()
    assert all(part in text and part not in shown.out for part in (
        'System environment:', "type='FasterRCNN'", 'Hooks will be executed'))
