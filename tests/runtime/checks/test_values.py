"""Kinds of values, and the keys of the parts of an optimizer wrapper and of dicts without a type."""
import inspect
from typing import Literal, Optional, Union

import pytest

from mmkcla.cli.errors import explain
from mmkcla.errors import UserError
from mmkcla.runtime.checks import check_keys, check_settings
from mmkcla.runtime.checks.kinds_taken import kinds_taken
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import import_hosts, prepare_hosts

COINS, DIGITS, UNET = 'faster-rcnn_r18-kcla_fpn_coins', 'kcla-resnet20_digits', 'unet-kcla-small_coins'
TRUTH = [('no', False), ('yes', True), ('on', True), ('off', False), ('No', False)]


@pytest.fixture(scope='module', autouse=True)
def _hosts():
    import_hosts(['mmdet', 'mmseg', 'mmpretrain'], with_models=True)


def refusal(name: str, *options: str) -> str:
    with pytest.raises(UserError) as error:
        config = load_config(name, list(options))
        check_settings(config)
        prepare_hosts(config)
        check_keys(config)
    return str(error.value)


@pytest.mark.parametrize(('word', 'truth'), TRUTH)
@pytest.mark.parametrize('place', ['model.backbone.norm_eval', 'train_dataloader.sampler.shuffle',
                                   'env_cfg.cudnn_benchmark', 'model.rpn_head.loss_cls.use_sigmoid'])
def test_words_of_truth_in_options(place, word, truth) -> None:
    says = refusal(COINS, f'{place}={word}')
    assert says == f'--cfg-options {place}={word} is text, which counts as true; write {truth}'


@pytest.mark.parametrize(('name', 'place', 'word'), [
    (COINS, 'train_dataloader.drop_last', 'no'), (COINS, 'default_hooks.checkpoint.save_last', 'off'),
    (COINS, 'randomness.deterministic', 'no'), (COINS, 'model.backbone.with_cp', 'off'),
    (COINS, 'train_dataloader.pin_memory', 'no'), (COINS, 'train_dataloader.dataset.test_mode', 'no'),
    (DIGITS, 'model.backbone.norm_eval', 'no'), (UNET, 'model.decode_head.align_corners', 'no'),
    (UNET, 'train_dataloader.persistent_workers', 'on')])
def test_words_of_truth_in_files(tmp_path, name, place, word) -> None:
    import mmkcla
    *outer, key = place.split('.')
    text = f"{key}={word!r}"
    for part in reversed(outer[1:]):
        text = f'{part}=dict({text})'
    path = tmp_path / 'child.py'
    path.write_text(f"_base_ = {str(mmkcla.config_file(name + '.py'))!r}\n{outer[0]} = dict({text})\n")
    truth = dict(TRUTH)[word]
    assert refusal(str(path)) == f"{place}={word!r} must be True or False; write {truth}"


@pytest.mark.parametrize(('option', 'says'), [
    ('optim_wrapper.paramwise_cfg=dict(norm_decay_mul=0)', "optim_wrapper.paramwise_cfg.norm_decay_mul: "
     "DefaultOptimWrapperConstructor takes no 'norm_decay_mul' (did you mean 'norm_decay_mult'?)"),
    ('optim_wrapper.paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mul=.1)))', "optim_wrapper.paramwise_cfg."
     "custom_keys.backbone.lr_mul: custom_keys takes no 'lr_mul' (did you mean 'lr_mult'?)"),
    ('optim_wrapper.paramwise_cfg=dict(custom_keys=dict(backbone=dict(decay_mul=.1)))', "optim_wrapper.paramwise_cfg."
     "custom_keys.backbone.decay_mul: custom_keys takes no 'decay_mul' (did you mean 'decay_mult'?)"),
    ('optim_wrapper.paramwise_cfg=dict(custom_keys=dict(backbone=.1))', 'optim_wrapper.paramwise_cfg.custom_keys.'
     'backbone=0.1 must be a dict such as dict(lr_mult=0.1)'),
    ('optim_wrapper.paramwise_cfg=dict(custom_keys=dict(layer1=dict(weight=dict(lr_mult=1))))',
     "optim_wrapper.paramwise_cfg.custom_keys.layer1 has the dict 'weight'; write a name with dots in quotes: "
     "optim_wrapper.paramwise_cfg.custom_keys.'layer1.weight'.lr_mult=…"),
    ('optim_wrapper.clip_grad.max_nor=2', "optim_wrapper.clip_grad.max_nor: clip_grad_norm_ takes no 'max_nor' (did "
     "you mean 'max_norm'?)"),
    ('optim_wrapper.clip_grad=dict(_delete_=True, type=value, clip_valu=1)', "optim_wrapper.clip_grad.clip_valu: "
     "clip_grad_value_ takes no 'clip_valu' (did you mean 'clip_value'?)"),
    ('optim_wrapper.clip_grad=dict(_delete_=True, norm_type=2)', 'optim_wrapper.clip_grad without max_norm clips '
     'nothing; set optim_wrapper.clip_grad.max_norm=…, or optim_wrapper.clip_grad=None'),
    ('optim_wrapper.clip_grad.type=norn', "optim_wrapper.clip_grad.type='norn' must be 'norm' or 'value'"),
    ('optim_wrapper.clip_grad.max_norm=abc', "optim_wrapper.clip_grad.max_norm='abc' must be a number above 0"),
    ('optim_wrapper.clip_grad=5', 'optim_wrapper.clip_grad=5 must be a dict'),
    ('optim_wrapper.optimizer.betas=0.5', 'optim_wrapper.optimizer.betas=0.5 must be two numbers, e.g. (0.9,0.999)'),
    ('optim_wrapper.optimizer.betas.1=0.5', '--cfg-options optim_wrapper.optimizer.betas.1: optim_wrapper.optimizer.'
     'betas is not in the config, so it has no entry 1; give optim_wrapper.optimizer.betas as a whole'),
    ('optim_wrapper=dict(type=AmpOptimWrapper, loss_scale=abc)', "optim_wrapper.loss_scale='abc' must be 'dynamic', or "
     'a number above 0 with a decimal point'),
    ('optim_wrapper=dict(type=AmpOptimWrapper, loss_scale=dict(init_scal=2.))', "optim_wrapper.loss_scale.init_scal: "
     "GradScaler takes no 'init_scal' (did you mean 'init_scale'?)"),
    ('optim_wrapper=dict(type=AmpOptimWrapper, dtype=half)', "optim_wrapper.dtype='half' must be one of float16, "
     'bfloat16, float32, float64'),
    ('model.test_cfg.rcnn.score_th=.1', "model.test_cfg.rcnn.score_th: nothing in mmdet reads 'score_th' (did you mean "
     "'score_thr'?)"),
    ('model.test_cfg.rcnn.score_thr=abc', '--cfg-options model.test_cfg.rcnn.score_thr=abc is text, but the config has '
     '0.05; give a value of the same kind'),
    ('model.data_preprocessor.mean.0=abc', '--cfg-options model.data_preprocessor.mean.0=abc is text, but the config '
     'has 123.675; give a value of the same kind'),
    ('model.data_preprocessor.men=1', "model.data_preprocessor.men: DetDataPreprocessor takes no 'men' (did you mean "
     "'mean'?)"),
    ('model.neck.num_outs=abc', "model.neck.num_outs='abc' must be an integer"),
    ('model.backbone=5', 'model.backbone=5 must be a dict'),
    ('model.neck=abc', "model.neck='abc' must be a dict"),
    ('model.backbone.depth=True', 'model.backbone.depth=True must be an integer'),
    ('find_unused_parameters=no', "find_unused_parameters must be True or False, got 'no'"),
    ('compile=yes', "compile must be True or False or a dict, got 'yes'"),
    ('sync_bn=yes', "sync_bn must be 'torch', 'mmcv' or None, got 'yes'"),
])
def test_values_and_keys(option, says) -> None:
    assert refusal(COINS, option) == says


def test_preprocessor_without_a_type() -> None:
    for place in ('data_preprocessor', 'model.data_preprocessor'):
        assert refusal(DIGITS, f'{place}.men=1') == (f"{place}.men: ClsDataPreprocessor takes no 'men' (did you mean "
                                                     "'mean'?)")


@pytest.mark.parametrize('value', ['abc', '', '1', 'Flase'])
@pytest.mark.parametrize(('name', 'place'), [
    *((COINS, f'train_dataloader.{key}') for key in ('drop_last', 'pin_memory', 'persistent_workers')),
    (COINS, 'model.backbone.norm_eval'), (COINS, 'model.backbone.with_cp'),
    (COINS, 'model.backbone.norm_cfg.requires_grad'), (COINS, 'model.rpn_head.loss_cls.use_sigmoid'),
    (COINS, 'default_hooks.checkpoint.by_epoch'),
    (COINS, 'model.neck.no_norm_on_lateral'), (DIGITS, 'data_preprocessor.to_rgb'),
    (DIGITS, 'model.data_preprocessor.to_rgb'), (UNET, 'train_dataloader.dataset.reduce_zero_label')])
def test_text_in_place_of_a_truth_value(name, place, value) -> None:
    norm = ['model.backbone.norm_cfg.type=BN'] if 'norm_cfg' in place else []
    assert refusal(name, *norm, f"{place}='{value}'") == f'{place}={value!r} must be True or False'


def test_text_that_an_argument_with_a_truth_value_as_default_takes() -> None:
    """FPN takes False, True or text for ``add_extra_convs``, and checks the text itself."""
    config = load_config(COINS, ['model.neck.add_extra_convs=on_input'])
    check_settings(config)
    prepare_hosts(config)
    check_keys(config)


def test_every_default_that_is_a_truth_value_refuses_text() -> None:
    """Of all classes that the hosts register; the exceptions compare the argument with text."""
    import mmengine.registry as registries
    roots = [root for root in vars(registries).values() if isinstance(root, registries.Registry)]
    classes = {part for root in roots for each in (root, *root.children.values()) for part in each.module_dict.values()}
    count, taking = 0, set()
    for part in classes:
        try:
            parameters = inspect.signature(part).parameters.values()
        except (TypeError, ValueError):
            continue
        for parameter in parameters:
            if isinstance(parameter.default, bool):
                kinds = kinds_taken(part)[parameter.name]
                count += 1
                if not kinds.refusal('abc'):
                    taking.add(parameter.name)
                assert kinds.refusal('no') and not kinds.refusal(True), (part, parameter)
    assert count > 1000
    assert taking <= {'add_extra_convs', 'bias', 'resume'}, taking


def _function(a: bool, b: Optional[int], c: Union[bool, str],  # noqa: UP007, UP045
              d: float, e: dict, f: 'list[int]', g=True,
              h=1, *, i: Literal['x'], j: inspect.Signature = None, k: int | None = None, m=False, n: 'bool' = True,
              o: 'OnlyForTypeCheckers' = None, **rest):  # noqa: F821
    """All sorts of hints."""
    assert isinstance(m, (str, bool))


@pytest.mark.parametrize(('name', 'right', 'wrong'), [
    ('a', [True, 0, None], ['no', 'x', 2, 1.5, [], {}]), ('b', [1, 1.5, (1, 2), None], ['1', True, {}]),
    ('c', ['x', True], ['no', 'OFF', 5, {}]), ('d', [1, 2.5], ['x', False]), ('e', [{}, []], ['x', 1, True]),
    ('f', [[1], (1, ), 3], ['x', True]), ('g', [5, {}], ['yes', 'x']), ('h', ['x', 'no', []], []),
    ('i', ['x', 'y'], [1, True]), ('j', [1, 'no', True], []), ('k', [3, None], ['x', {}]),
    ('m', ['x', True, 'on_input'], ['no']), ('n', [True, 0], ['x', 'no', 2])])
def test_kinds_of_hints_and_defaults(name, right, wrong) -> None:
    kinds = kinds_taken(_function)[name]
    assert [value for value in right if kinds.refusal(value)] == []
    assert [value for value in wrong if not kinds.refusal(value)] == []


@pytest.mark.parametrize('error', [KeyError('a'), IndexError('tuple index out of range'), ZeroDivisionError('division'),
                                   AttributeError('x'), RuntimeError('bad')])
def test_errors_of_constructors_are_one_line(error) -> None:
    from mmengine.registry import Registry
    registry = Registry('values')

    @registry.register_module()
    class Part:
        def __init__(self):
            raise error

    with pytest.raises(type(error)) as caught:
        registry.build(dict(type='Part'))
    assert explain(caught.value) == f'config: Part: {type(error).__name__}: {error}'
    assert explain(KeyError('a')) is None  # not while a part was built
