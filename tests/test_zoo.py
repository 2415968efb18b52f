"""``import mmkcla.zoo`` adds the classification configs to mmpretrain's list of models."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from mmengine.config import Config
from mmengine.registry import DefaultScope

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def own_scope():
    yield
    DefaultScope._instance_dict.clear()


def own_names() -> set[str]:
    from mmkcla.zoo import FOLDERS
    return {model['Name'] for folder in FOLDERS
            for model in yaml.safe_load((ROOT / 'configs' / folder / 'metafile.yml').read_text())['Models']}


def test_every_classifier_is_listed_and_nothing_else():
    from mmpretrain import list_models

    import mmkcla.zoo
    classifiers = set()
    for metafile in (ROOT / 'configs').glob('*/metafile.yml'):
        config = Config.fromfile(next(metafile.parent.glob('*.py')))
        if config.get('default_scope') == 'mmpretrain':
            classifiers.add(metafile.parent.name)
    assert classifiers == set(mmkcla.zoo.FOLDERS)
    listed = list_models()
    assert own_names() <= set(listed) and len(listed) == len(set(listed))
    assert set(list_models('*kcla*')) == {name for name in own_names() if 'kcla' in name}
    assert set(list_models('kcla', task='Image Classification')) == {n for n in own_names() if n.startswith('kcla')}
    assert mmkcla.zoo.register() == []  # once only
    assert list_models() == listed


def test_models_are_built_by_name():
    from mmpretrain import get_model, inference_model

    import mmkcla.zoo  # noqa: F401
    image = torch.arange(24 * 24 * 3).reshape(24, 24, 3).remainder(251).to(torch.uint8).numpy()
    model = get_model('kcla-resnet20_1xb128-180e_cifar10')
    assert type(model.backbone).__name__ == 'CifarLayerAttentionResNet' and model.head.num_classes == 10
    result = inference_model(model, image)
    assert result['pred_class'] == model._dataset_meta['classes'][result['pred_label']]
    # mmpretrain's own model keeps its name
    assert 'mmpretrain/.mim/configs/resnet/' in Path(get_model('resnet50_8xb32_in1k')._config.filename).as_posix()


def test_installed_layout(tmp_path):
    """In an installed package the configs lie in ``mmkcla/.mim``."""
    (tmp_path / 'mmkcla' / '.mim').mkdir(parents=True)
    (tmp_path / 'mmkcla' / '.mim' / 'configs').symlink_to(ROOT / 'configs')
    code = ("import pathlib; import mmkcla.paths as p; p._PACKAGE = pathlib.Path('mmkcla').absolute()\n"
            "import mmkcla.zoo; from mmpretrain.apis import ModelHub\n"
            "print(ModelHub._models_dict['kcla-resnet50_8xb32_in1k'].config)")
    result = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True,
                            env=os.environ | {'PYTHONPATH': str(ROOT)})
    assert result.stdout.split()[-1] == str(tmp_path / 'mmkcla/.mim/configs/imagenet/kcla-resnet50_8xb32_in1k.py')


def test_without_mmpretrain(tmp_path):
    code = ("import sys; sys.modules['mmpretrain'] = None\n"
            "from mmkcla.errors import UserError\n"
            "try: import mmkcla.zoo\n"
            "except UserError as error: print(error)")
    result = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True,
                            env=os.environ | {'PYTHONPATH': str(ROOT)})
    assert result.stdout.strip() == 'mmkcla.zoo needs mmpretrain: run `pip install onedl-mmpretrain`'
