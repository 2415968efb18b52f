"""The stereo configs: what they say, and that they run from data to picture without a host."""
import json
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from stereo_data import pair_folder

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.stereo.motorcycle import convert

CONFIGS = Path(__file__).parents[2] / 'configs'
FULL, DEMO = CONFIGS / 'ea_psmnet' / 'ea-psmnet_4xb3-10e_sceneflow.py', CONFIGS / 'demo' / 'ea-psmnet_motorcycle.py'
FAST = ['train_cfg.max_iters=2', 'param_scheduler=None', 'train_cfg.val_interval=2',
        'default_hooks.checkpoint.interval=2', 'train_dataloader.batch_size=2']


@pytest.mark.parametrize('path', [FULL, DEMO], ids=lambda path: path.stem)
def test_plain_twin_lacks_the_attention_and_nothing_else(path):
    ours, plain = (Config.fromfile(each) for each in (path, path.with_name(path.name.removeprefix('ea-'))))
    init_default_scope(ours.default_scope)
    with_ea, without = (sum(parameter.numel() for parameter in MODELS.build(config.model).parameters())
                        for config in (ours, plain))
    channels = ours.model.feature_net.stage_channels[-1]
    assert with_ea - without == 4 * channels * channels // 2 + 3 * channels // 2 + channels
    assert ours.model.feature_net.pop('attention') == dict(type='mmkcla.EfficientAttention')
    assert ours.to_dict() == plain.to_dict()


def test_recipe_is_psmnets():
    config = Config.fromfile(FULL)
    assert config.optim_wrapper.optimizer == dict(type='Adam', lr=1e-3, betas=(0.9, 0.999))
    assert (config.train_dataloader.batch_size, config.auto_scale_lr.base_batch_size, config.train_cfg.max_epochs) == (
        3, 12, 10)
    assert config.train_dataloader.dataset.pipeline[2] == dict(type='mmkcla.StereoRandomCrop', size=(256, 512))
    assert config.model.max_disparity == config.test_evaluator.max_disparity == 192
    assert config.get('param_scheduler') is None and config.default_scope == 'mmengine'


def test_demo_trains_and_is_tested(tmp_path, monkeypatch, capsys):
    convert(tmp_path / 'data' / 'motorcycle')
    monkeypatch.chdir(tmp_path)
    assert main(['train', str(DEMO), '--work-dir', 'out', '--seed', '0', '--cfg-options', *FAST]) == 0
    state = read_checkpoint(tmp_path / 'out' / 'iter_2.pth')['state_dict']
    assert 'feature_net.attentions.3.keys.weight' in state
    assert (tmp_path / 'out' / 'curves.png').is_file()
    assert main(['test', str(DEMO), 'out/iter_2.pth', '--work-dir', 'test', '--cfg-options',
                 'test_evaluator.out_dir=test/pictures']) == 0
    metrics = json.loads((tmp_path / 'test' / 'metrics.json').read_text())
    assert set(metrics) == {'EPE', '1px', '3px', 'D1'} and 0 < metrics['EPE'] < 32 and 0 < metrics['3px'] <= 1
    assert (tmp_path / 'test' / 'pictures' / 'motorcycle.png').is_file()
    assert 'Could not import' not in capsys.readouterr().out


def test_scene_flow_config_trains_on_its_layout(tmp_path, monkeypatch):
    """The full-size config with fewer channels and smaller crops, a whole epoch and its evaluation."""
    for split, names in (('TRAIN/A/0000', ('0006', '0007')), ('TEST/B/0001', ('0006', ))):
        made = pair_folder(tmp_path / split, names, disparity=20, height=70, width=140)
        top = tmp_path / 'data' / 'sceneflow' / 'FlyingThings3D'
        for side in ('left', 'right'):
            (top / 'frames_cleanpass' / split).mkdir(parents=True, exist_ok=True)
            (made / side).rename(top / 'frames_cleanpass' / split / side)
        (top / 'disparity' / split).mkdir(parents=True)
        (made / 'disparity').rename(top / 'disparity' / split / 'left')
    monkeypatch.chdir(tmp_path)
    assert main(['train', str(FULL), '--work-dir', 'out', '--cfg-options', 'train_cfg.max_epochs=1',
                 'train_cfg.val_interval=1', 'train_dataloader.dataset.pipeline.2.size=[64,128]',
                 'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0', 'train_dataloader.batch_size=2',
                 'model.feature_net.stage_blocks=[1,1,1,1]', 'model.aggregation.channels=4']) == 0
    log = next((tmp_path / 'out').glob('*/*.log')).read_text()
    assert '1 maps, 9800 pixels with a true disparity above 0 and below 192: EPE ' in log
    assert 'loss_disparity_0' in log and 'loss_disparity_2' in log and (tmp_path / 'out' / 'epoch_1.pth').is_file()


def test_errors_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(['train', str(DEMO)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(
        'error: StereoPairDataset: data_root data/motorcycle/train is not a folder; it must contain left/, right/')
    pair_folder(tmp_path / 'small')
    assert main(['train', str(DEMO), '--cfg-options', 'train_dataloader.dataset.data_root=small',
                 'val_dataloader.dataset.data_root=small', *FAST]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith('error: ') and 'has 64×32 pixels, smaller than the crop of 128×96' in line
    assert main(['train', str(DEMO), '--cfg-options', 'model.max_disparity=30', *FAST]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == 'error: EAPSMNet: max_disparity=30 must be a multiple of 4 for BasicAggregation'
