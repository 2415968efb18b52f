"""The demo's detectors train a few steps through the tool: alone, checkpointed, and on two processes."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from coins_data import small_coins

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main

DEMOS = ['faster-rcnn_r18-kcla_fpn_coins', 'mask-rcnn_r18-kcla_fpn_coins']
SHORT = ['train_cfg.max_iters=3', 'train_cfg.val_interval=3', 'train_dataloader.batch_size=2',
         'val_dataloader.batch_size=2', 'model.backbone.base_channels=16', 'model.backbone.stem_channels=16',
         'model.neck.in_channels=[16,32,64,128]']


@pytest.fixture(scope='module')
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp('workshop')
    small_coins(folder / 'data' / 'coins')
    return folder


def weights(folder):
    return read_checkpoint(folder / 'iter_3.pth')['state_dict']


@pytest.mark.parametrize('name', DEMOS)
def test_demo_config_trains(workshop, monkeypatch, name):
    monkeypatch.chdir(workshop)
    assert main(['train', name, '--work-dir', name, '--cfg-options', *SHORT]) == 0
    state = weights(workshop / name)
    assert all(value.isfinite().all() for value in state.values() if value.is_floating_point())
    assert (workshop / name / 'curves.png').is_file()


def test_checkpointing_trains_the_same(workshop, monkeypatch):
    """with_cp of the blocks and of the attentions: the same weights after three steps, running statistics included."""
    monkeypatch.chdir(workshop)
    states = []
    for folder, options in (('plain', []), ('cheap', ['model.backbone.with_cp=True',
                                                      'model.backbone.layer_attention.with_cp=True'])):
        assert main(['train', DEMOS[0], '--work-dir', folder, '--cfg-options', *SHORT, *options]) == 0
        states.append(weights(workshop / folder))
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize('options', [[], ['model.backbone.with_cp=True', 'model.backbone.layer_attention.with_cp=True',
                                          'model.backbone.frozen_stages=1']], ids=['plain', 'checkpointed'])
def test_two_processes(workshop, options):
    """DDP over gloo with find_unused_parameters=False: no dead parameter, none marked ready twice."""
    work_dir = workshop / f'ddp{len(options)}'
    command = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node=2', '--master-port=0', '--standalone',
               '-m', 'mmkcla', 'train', DEMOS[0], '--launcher', 'pytorch', '--work-dir', str(work_dir), '--cfg-options',
               *SHORT, 'find_unused_parameters=False', *options]
    result = subprocess.run(command, cwd=workshop, capture_output=True, text=True, timeout=400, check=False,
                            env=os.environ | {'OMP_NUM_THREADS': '1', 'PYTHONPATH': str(Path(__file__).parents[2])})
    assert result.returncode == 0, result.stderr[-3000:]
    state = weights(work_dir)
    assert all(value.isfinite().all() for value in state.values() if value.is_floating_point())
    log = next(work_dir.glob('*/*.log')).read_text()
    assert 'Distributed training: True' in log and 'GPU number: 2' in log and 'coco/bbox_mAP_50' in log
