"""``--cfg-options``: values, dicts among them, and variables that a config has used already."""
import pytest

from mmkcla.errors import UserError
from mmkcla.runtime.config import load_config
from mmkcla.runtime.options import parse_option

UNET = 'unet-kcla-small_1xb8-300e_isic2018-256x256'


@pytest.mark.parametrize(('text', 'value'), [
    ("dict(type='MRLALight')", dict(type='MRLALight')),
    ("{'type': 'KCLA', 'drop_path': .5, 'n': [-1, (2, None)]}", dict(type='KCLA', drop_path=.5, n=[-1, (2, None)])),
    ('dict(type=mmkcla.KCLA, inner=dict(a=True, b=false))', dict(type='mmkcla.KCLA', inner=dict(a=True, b=False))),
    ("[dict(type='A'), dict(type='B', n=2)]", [dict(type='A'), dict(type='B', n=2)]),
    ('dict()', {}), ('None', None), ('[1,a]', [1, 'a']), ('dictionary', 'dictionary'),
])
def test_values(text, value) -> None:
    assert parse_option(f'a.b={text}') == ('a.b', value)
    assert type(parse_option(f'a={text}')[1]) is type(value)


@pytest.mark.parametrize(('text', 'says'), [
    ("dict(a=__import__('os').getcwd())", '"__import__(\'os\').getcwd()" is not a value'),
    ('dict(1)', "'dict(1)' is not a value"), ('dict(**a)', "'dict(**a)' is not a value"),
    ('{**a}', "'{**a}' is not a value"), ('dict(a=1+2)', "'1 + 2' is not a value"), ('dict(a', "'(' was never closed"),
])
def test_values_that_are_refused(text, says) -> None:
    with pytest.raises(UserError) as error:
        parse_option(f'a={text}')
    assert str(error.value) == f"--cfg-options a={text}: {says}; a dict is written as dict(type='X', n=1)"


def test_dicts_are_merged_or_put_in_place() -> None:
    key = 'model.backbone.layer_attention'
    assert load_config(UNET, [f'{key}=dict(type=MRLALight)']).model.backbone.layer_attention == dict(
        type='MRLALight', head_channels=16)
    assert load_config(UNET, [f'{key}=dict(type=MRLALight, _delete_=True)']).model.backbone.layer_attention == dict(
        type='MRLALight')
    assert load_config(UNET, [f'{key}=None', 'model.backbone.x=dict(_delete_=True, a=1)']).model.backbone.x == dict(a=1)
    # there is none to merge into
    assert load_config(UNET, ['load_from=dict(a=1)']).load_from == dict(a=1)


def roots(config) -> list[str]:
    return [config[f'{split}_dataloader'].dataset.data_root for split in ('train', 'val', 'test')]


def test_data_root_reaches_every_path(capsys) -> None:
    config = load_config('faster-rcnn_r50-kcla_fpn_1x_coco', ['data_root=/d/coco2017'])
    assert roots(config) == ['/d/coco2017'] * 3
    assert config.val_evaluator.ann_file == '/d/coco2017/annotations/instances_val2017.json'
    assert config.data_root == '/d/coco2017'
    assert capsys.readouterr().err == ('note: --cfg-options data_root: replaced data/coco/ by /d/coco2017 in 5 paths '
                                       'of data sets and evaluators\n')
    both = load_config(UNET, ['train_dataloader.dataset.data_root=t', 'data_root=data/isic2018/small'])
    assert roots(both) == ['t', 'data/isic2018/small', 'data/isic2018/small']


def test_a_root_that_is_nowhere(tmp_path) -> None:
    (tmp_path / 'a.py').write_text("data_root = 'd'\nmodel = dict(type='A')\ntrain_dataloader = dict(dataset='data')\n")
    with pytest.raises(UserError, match='^--cfg-options data_root: no data set or evaluator of the config has a path '
                                        'in d; set the data_root of each'):
        load_config(str(tmp_path / 'a.py'), ['data_root=e'])


def test_crop_size_reaches_every_place(capsys) -> None:
    """Height and width; the scale of a resize is width and height."""
    config = load_config(UNET, ['crop_size=(96,128)'])
    assert config.model.data_preprocessor.size == (96, 128)
    assert config.tta_pipeline[1].transforms[0][0].scale == (128, 96)
    for split, number in (('train', 2), ('val', 1), ('test', 1)):
        assert config[f'{split}_dataloader'].dataset.pipeline[number].scale == (128, 96)
    assert '(256, 256)' not in str({key: value for key, value in config.items() if key.endswith(('loader', 'model'))})
    assert capsys.readouterr().err.startswith('note: --cfg-options crop_size: replaced (256, 256) by (96, 128) in ')


def test_used_variables_stop(tmp_path, capsys) -> None:
    for option, says in (
            ('crop_size=128', 'crop_size=128: give height and width, e.g. crop_size=(128,128)'),
            ('train_pipeline.0.type=A', 'train_pipeline.0.type: train_pipeline is a variable that was used when the '
             'config was loaded; changing it has no effect. Set '
             'train_dataloader.dataset.pipeline.0.type'),
            ('data_preprocessor.size=(64,64)', 'data_preprocessor.size: data_preprocessor is a variable that was used '
             'when the config was loaded; changing it has no effect. Set model.data_preprocessor'),
            ('max_epochs=3', 'max_epochs: max_epochs is neither a variable of the config nor read by a run; check the '
             'name')):
        with pytest.raises(UserError) as error:
            load_config(UNET, [option])
        assert str(error.value) == f'--cfg-options {says}'
    assert load_config(UNET, ['train_cfg.max_epochs=3', 'randomness.seed=1', 'compile=True']).compile is True
    capsys.readouterr()
    (tmp_path / 'a.py').write_text("model = dict(type='A')\nmine = 0\ncustom_imports = dict(imports=['json'])\n")
    assert load_config(str(tmp_path / 'a.py'), ['mine=5']).mine == 5  # what it imports may read it
    assert capsys.readouterr().err == ('note: --cfg-options mine: mine is a variable that was used when the config '
                                       'was loaded; changing it has no effect. Set the entries derived from it\n')


def test_the_places_of_a_used_variable_are_those_derived_from_it() -> None:
    """Not those that are equal to it by chance, such as the crop size 16 of the digits."""
    with pytest.raises(UserError) as error:
        load_config('kcla-resnet20_digits', ['max_epochs=1'])
    assert str(error.value).startswith('--cfg-options max_epochs: max_epochs is a variable that was used')
    assert set(str(error.value).partition('. Set ')[2].split(', ')) == {
        'param_scheduler.1.end', 'param_scheduler.1.T_max', 'train_cfg.max_epochs'}
