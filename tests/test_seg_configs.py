"""The segmentation configs load, build and run a forward; the small one is one line from its plain twin."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

ROOT = Path(__file__).parents[1] / 'configs'
FOLDERS = ('unet', 'deeplabv3plus', 'pspnet')
CONFIGS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob('*.py'))
DATASETS = {'isic2017': 'mmkcla.ISIC2017Dataset', 'isic2018': 'mmkcla.ISIC2018Dataset',
            'kvasir-seg': 'mmkcla.KvasirSEGDataset'}
ids = lambda path: path.stem  # noqa: E731


def test_every_data_set_has_every_model():
    names = {path.stem.rsplit('_', 1)[0] for path in CONFIGS}
    assert len(names) == 11 and len(CONFIGS) == 33
    assert {path.stem for path in CONFIGS} == {f'{name}_{data}-256x256' for name in names for data in DATASETS}


@pytest.mark.parametrize('path', CONFIGS, ids=ids)
def test_recipe(path):
    config = Config.fromfile(path)
    assert config.default_scope == 'mmseg' and 'custom_imports' not in config
    data = next(name for name in DATASETS if f'_{name}-256x256' in path.stem)
    loaders = [config.train_dataloader, config.val_dataloader, config.test_dataloader]
    assert [loader.dataset.split for loader in loaders] == ['train', 'val', 'test']  # never selected on the test set
    assert {loader.dataset.type for loader in loaders} == {DATASETS[data]}
    assert {loader.dataset.data_root for loader in loaders} == {'data/' + data.replace('-', '_')}
    assert config.train_cfg.max_epochs == 300 and config.train_dataloader.batch_size == 8
    optimizer = config.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 1e-3, 1e-2)
    cosine, = config.param_scheduler
    assert cosine.type == 'CosineAnnealingLR' and cosine.T_max == cosine.end == 300 and cosine.eta_min == 1e-5
    head = config.model.decode_head
    assert (head.num_classes, head.out_channels, head.threshold) == (2, 1, 0.5)
    assert [loss.type for loss in head.loss_decode] == ['CrossEntropyLoss', 'mmkcla.BinaryDiceLoss']
    assert [loss.loss_weight for loss in head.loss_decode] == [1., 1.]
    assert config.auto_scale_lr.base_batch_size == 8
    for evaluator in (config.val_evaluator, config.test_evaluator):
        assert evaluator.type == 'mmkcla.BinarySegMetric' and evaluator.threshold == 0.5


@pytest.mark.parametrize('path', [path for path in CONFIGS if 'isic2017' in path.stem], ids=ids)
@torch.no_grad()
def test_builds(path):
    config = Config.fromfile(path)
    init_default_scope('mmseg')
    model = MODELS.build(config.model).eval()
    assert model(torch.randn(1, 3, 64, 64), mode='tensor').shape[1] == 1
    if config.model.backbone.type != 'UNet':
        assert (model.backbone.layer_attentions is not None) is ('kcla' in path.stem)
        if 'init_cfg' in config.model.backbone and 'kcla' in path.stem:
            assert config.model.backbone.layer_attention.layer_scale_init == 0.


@pytest.mark.parametrize('path', [path for path in CONFIGS if 'kcla' in path.stem], ids=ids)
def test_kcla_is_one_line_from_its_plain_twin(path):
    ours, plain = (Config.fromfile(p) for p in (path, path.with_name(path.name.replace('-kcla', ''))))
    assert ours.model.backbone.pop('layer_attention').type == 'KCLA'
    assert ours.to_dict() == plain.to_dict()
