"""The segmentation configs load, build and run a forward; the small one is one line from its plain counterpart."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from segmentation_recipe import DATASETS, check_recipe

ROOT = Path(__file__).parents[2] / 'configs'
FOLDERS = ('unet', 'deeplabv3plus', 'pspnet')
CONFIGS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob('*.py'))
ids = lambda path: path.stem  # noqa: E731


def test_every_data_set_has_every_model():
    names = {path.stem.rsplit('_', 1)[0] for path in CONFIGS}
    assert len(names) == 11 and len(CONFIGS) == 33
    assert {path.stem for path in CONFIGS} == {f'{name}_{data}-256x256' for name in names for data in DATASETS}


@pytest.mark.parametrize('path', CONFIGS, ids=ids)
def test_recipe(path):
    check_recipe(path)


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
