"""Variables that a config sets over its bases: their entries move along, or the config is refused."""
from pathlib import Path

import pytest

from mmkcla.errors import UserError
from mmkcla.paths import config_file, configs_root
from mmkcla.runtime.child_variables import spent_variables
from mmkcla.runtime.config import load_config
from mmkcla.runtime.config_source import ConfigSource

UNET = config_file('unet/unet-kcla-small_1xb8-300e_isic2018-256x256.py')
DIGITS = config_file('demo/kcla-resnet20_digits.py')
COINS = config_file('demo/unet-kcla-small_coins.py')


def child(folder: Path, base: str | Path, text: str, name: str = 'child') -> str:
    path = folder / f'{name}.py'
    path.write_text(f'_base_ = {str(base)!r}\n{text}\n')
    return str(path)


def sizes(config) -> list:
    pipelines = [config[f'{split}_dataloader'].dataset.pipeline for split in ('train', 'val', 'test')]
    return [config.model.data_preprocessor.size, config.tta_pipeline[1].transforms[0][0].scale,
            *(step.scale for pipeline in pipelines for step in pipeline if 'scale' in step)]


def test_crop_size_takes_its_five_places_along(tmp_path, capsys) -> None:
    path = child(tmp_path, UNET, 'crop_size = (64, 96)')
    config = load_config(path, [])
    assert sizes(config) == [(64, 96), *[(96, 64)] * 4]  # a scale is width and height
    assert capsys.readouterr().err == (f'note: {path}: crop_size: replaced (256, 256) '
                                       'of its base by (64, 96) in 5 places\n')
    assert sizes(load_config(path, ['crop_size=(32,48)'])) == [(32, 48), *[(48, 32)] * 4]


def test_a_child_of_a_child(tmp_path) -> None:
    first = child(tmp_path, UNET, 'crop_size = (64, 64)')
    assert sizes(load_config(child(tmp_path, first, 'crop_size = (32, 32)', 'second'), [])) == [(32, 32)] * 5
    assert sizes(load_config(child(tmp_path, first, 'work_dir = "w"', 'third'), [])) == [(64, 64)] * 5


def test_a_model_of_a_moved_config(tmp_path) -> None:
    """The sizes are those of the images, too."""
    import torch
    from mmengine.registry import init_default_scope
    from mmseg.registry import MODELS
    from mmseg.structures import SegDataSample

    import mmkcla.models  # noqa: F401  registers the classes
    config = load_config(child(tmp_path, UNET, 'crop_size = (64, 96)'), [])
    init_default_scope('mmseg')
    model = MODELS.build(config.model)
    data = model.data_preprocessor(dict(inputs=[torch.zeros(3, 60, 90)], data_samples=[SegDataSample()]), True)
    assert data['inputs'].shape == (1, 3, 64, 96)


def test_data_root_takes_its_paths_along(tmp_path, capsys) -> None:
    path = child(tmp_path, config_file('faster_rcnn/faster-rcnn_r50-kcla_fpn_1x_coco.py'), "data_root = '/d/coco'")
    config = load_config(path, [])
    assert config.val_evaluator.ann_file == '/d/coco/annotations/instances_val2017.json'
    assert [config[f'{split}_dataloader'].dataset.data_root for split in ('train', 'val', 'test')] == ['/d/coco'] * 3
    assert capsys.readouterr().err == (f'note: {path}: data_root: replaced data/coco/ '
                                       'of its base by /d/coco in 5 places\n')


@pytest.mark.parametrize(('base', 'text', 'name', 'places'), [
    (DIGITS, 'max_epochs = 1', 'max_epochs', 'param_scheduler.1.end, param_scheduler.1.T_max, train_cfg.max_epochs'),
    (COINS, 'max_iters = 10', 'max_iters', 'train_cfg.max_iters, param_scheduler.1.end'),
    (UNET, "dataset_type = 'mmkcla.KvasirSEGDataset'", 'dataset_type', 'train_dataloader.dataset.type, '
     'val_dataloader.dataset.type, test_dataloader.dataset.type'),
    (UNET, 'data_preprocessor = dict(size=(64, 64))', 'data_preprocessor', 'model.data_preprocessor.size'),
    (UNET, "train_pipeline = [dict(type='PackSegInputs')]", 'train_pipeline', 'train_dataloader.dataset.pipeline'),
])
def test_other_variables_are_refused(tmp_path, base, text, name, places) -> None:
    path = child(tmp_path, base, text)
    with pytest.raises(UserError) as error:
        load_config(path, [])
    start = f'{path}: {name} has no effect, since its base has used it already. Set '
    assert str(error.value).startswith(start)
    assert set(str(error.value)[len(start):].split(', ')) == set(places.split(', '))


def test_no_line_for_variables_that_are_used_or_derived_nowhere(tmp_path, capsys) -> None:
    load_config(child(tmp_path, DIGITS, 'max_epochs = 1\ntrain_cfg = dict(max_epochs=max_epochs)'), [])
    load_config(child(tmp_path, DIGITS, 'max_epochs = 16\nmine = 3'), [])  # the same value; a new name
    load_config(child(tmp_path, DIGITS, 'train_cfg = dict(max_epochs=2)\nparam_scheduler = []\nmax_epochs = 2'), [])
    assert capsys.readouterr().err == ''


def test_custom_imports_may_read_the_variable(tmp_path, capsys) -> None:
    path = child(tmp_path, DIGITS, "max_epochs = 1\ncustom_imports = dict(imports=['json'])")
    assert load_config(path, []).max_epochs == 1
    assert capsys.readouterr().err.startswith(f'note: {path}: max_epochs has no effect, since its base has used it')


def test_files_of_installed_libraries_are_not_refused(tmp_path, capsys) -> None:
    folder = tmp_path / 'lib' / '.mim'
    folder.mkdir(parents=True)
    path = child(folder, DIGITS, 'max_epochs = 1')
    assert load_config(child(tmp_path, path, 'work_dir = "w"', 'own'), []).train_cfg.max_epochs == 16
    assert capsys.readouterr().err.startswith(f'note: {path}: max_epochs has no effect')


def test_a_size_without_entries_is_named(tmp_path, capsys) -> None:
    """The coin config has its own sizes; the variable of the base is not used there."""
    path = child(tmp_path, COINS, 'crop_size = (64, 64)')
    load_config(path, [])
    assert capsys.readouterr().err == (f'note: {path}: crop_size has no effect: no entry of the config has the value '
                                       'of its base, (256, 256)\n')


def test_data_files_as_children(tmp_path) -> None:
    (tmp_path / 'child.json').write_text(f'{{"_base_": "{UNET}", "crop_size": [64, 64]}}')
    assert sizes(load_config(str(tmp_path / 'child.json'), [])) == [(64, 64)] * 5


def test_no_shipped_config_sets_a_variable_without_effect() -> None:
    files = [path for path in sorted(configs_root().rglob('*.py')) if '_base_' not in path.parts]
    assert len(files) > 150
    for path in files:
        assert spent_variables(ConfigSource(path)) == []
