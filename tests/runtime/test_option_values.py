"""The values of ``--cfg-options``: as they are written."""
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmkcla.errors import UserError
from mmkcla.runtime.config import load_config
from mmkcla.runtime.option_values import parse_value
from mmkcla.runtime.options import key_parts, parse_option

DIGITS = 'resnet20_digits'
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers() | st.booleans()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple)
                      | st.dictionaries(KEYS, inner), max_leaves=12)


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_every_value_is_read_back(value) -> None:
    found = parse_value(repr(value))
    assert repr(found) == repr(value)  # 1, 1.0 and True differ
    assert repr(parse_option(f'a.b={value!r}')[1]) == repr(value)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='ab/ é:~\\%@-_=', min_size=1).map(lambda text: f'dir/{text}') | st.text(alphabet='xyz /,').map(
    lambda text: f'/{text}'))
def test_paths_stay_as_they_are(text) -> None:
    assert parse_value(text) == text


@pytest.mark.parametrize(('text', 'value'), [
    ('1', 1), ('-1e-3', -0.001), ('1e-4', 0.0001), ('.5', 0.5), ('1_000', 1000), ('007', 7), ('+1', 1), ('0x10', 16),
    ('inf', math.inf), ('-inf', -math.inf), ('None', None), ('True', True), ('false', False), ('none', 'none'),
    ('a,b', ['a', 'b']), ('1,2', [1, 2]), ('1, 2', [1, 2]), ('1,', [1]), ('a,', ['a']), ('10,a', [10, 'a']),
    ('hello, world', 'hello, world'), ('my data', 'my data'), ('/a,b/c', '/a,b/c'), ('a,b/c', 'a,b/c'),
    ("'a,b'", 'a,b'), ('"it\'s"', "it's"), ("it's", "it's"), ("'a','b c'", ['a', 'b c']), ('', ''), ('  x ', '  x '),
    ('a=b', 'a=b'), ('[]', []), ('()', ()), ('[a,]', ['a']), ('(3)', (3, )), ("('a')", ('a', )),
    ('(256,256)', (256, 256)),
    ('[a/b,c d]', ['a/b', 'c d']), ('[[1,2],(3,a)]', [[1, 2], (3, 'a')]), ('[inf,-1]', [math.inf, -1]),
    ('(old)/data', '(old)/data'), ('{x}/y', '{x}/y'), ('a(b', 'a(b'), ('C:\\new', 'C:\\new'),
    ('2020-01-01', '2020-01-01'),
    ('1.2.3', '1.2.3'), ('1j', '1j'), ("b'x'", "b'x'"), ('...', '...'), ('é,ü', ['é', 'ü']),
    ('[dict(type=KCLA), b]', [dict(type='KCLA'), 'b']), ('mmkcla.A,B', ['mmkcla.A', 'B']), ('{0: 1}', {0: 1}),
])
def test_values(text, value) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_nan() -> None:
    assert math.isnan(parse_value('nan'))


@pytest.mark.parametrize('text', ['[1,2', '(1', 'dict(a', '{1: 2'])
def test_brackets_that_are_not_closed(text) -> None:
    with pytest.raises(UserError, match="was never closed; a dict is written as dict"):
        parse_option(f'a={text}')


def test_keys() -> None:
    assert key_parts("a.'b.c'.d") == ['a', 'b.c', 'd']
    assert key_parts('a."b=c".0') == ['a', 'b=c', '0']
    assert parse_option("a.'b=c'.d=e=f") == ("a.'b=c'.d", 'e=f')
    assert parse_option('a = 1') == ('a', 1)
    assert parse_option('a = b') == ('a', 'b')
    for option in ('a', '=1', 'a..b=1', '.a=1', 'a.=1'):
        with pytest.raises(UserError, match='^--cfg-options takes KEY=VALUE, got'):
            parse_option(option)


def test_text_settings_stay_text(tmp_path) -> None:
    config = load_config(DIGITS, ['work_dir=my data, old/2', 'load_from=2024', 'experiment_name=a,b'])
    assert (config.work_dir, config.load_from, config.experiment_name) == ('my data, old/2', '2024', 'a,b')
    assert load_config(DIGITS, ['work_dir=1e5']).work_dir == '1e5'
    assert load_config(DIGITS, ['load_from=None']).load_from is None


def test_indices_of_lists_and_tuples() -> None:
    config = load_config(DIGITS, ['param_scheduler.-1.end=12', 'param_scheduler.0.end=5',
                                  'optim_wrapper.optimizer.betas=(0.9,0.99)', 'optim_wrapper.optimizer.betas.1=.95',
                                  'test_dataloader.dataset.pipeline.-1.type=PackInputs'])
    assert [part['end'] for part in config.param_scheduler] == [5, 12]
    assert config.optim_wrapper.optimizer.betas == (0.9, 0.95)
    for option, says in (
            ('param_scheduler.2.end=5', 'index 2 is out of range, since param_scheduler has 2 entries'),
            ('param_scheduler.-3.end=5', 'index -3 is out of range, since param_scheduler has 2 entries'),
            ('param_scheduler.end=5', "param_scheduler is a list; write an index instead of 'end'"),
            ('log_level.a=5', "log_level is 'INFO', which has no entries")):
        with pytest.raises(UserError) as error:
            load_config(DIGITS, [option])
        assert str(error.value) == f'--cfg-options {option.partition("=")[0]}: {says}'


def test_shared_parts_are_not_changed_together() -> None:
    config = load_config(DIGITS, ['val_dataloader.batch_size=3', 'val_dataloader.dataset.pipeline.0.x=1'])
    assert config.test_dataloader.batch_size != 3
    assert 'x' not in config.test_dataloader.dataset.pipeline[0]
    assert config.val_dataloader.dataset.pipeline[0].x == 1


def test_dotted_names(capsys) -> None:
    key = 'optim_wrapper.paramwise_cfg.custom_keys'
    wanted = {'backbone.layer1': {'lr_mult': 0.1}}
    for option in (f"{key}.'backbone.layer1'.lr_mult=.1", f"{key}={{'backbone.layer1': dict(lr_mult=.1)}}",
                   f"{key}.'backbone.layer1'=dict(lr_mult=.1)"):
        assert load_config(DIGITS, [option]).optim_wrapper.paramwise_cfg.custom_keys == wanted


def test_options_that_are_repeated_or_conflict(capsys) -> None:
    config = load_config(DIGITS, ['train_cfg.max_epochs=3', 'train_cfg.max_epochs=5'])
    assert config.train_cfg.max_epochs == 5
    assert capsys.readouterr().err == ('note: --cfg-options train_cfg.max_epochs is given 2 times; the last value, 5, '
                                       'is used\n')
    with pytest.raises(UserError) as error:
        load_config(DIGITS, ['param_scheduler.0.end=5', 'param_scheduler=[]'])
    assert str(error.value) == ('--cfg-options param_scheduler.0.end and param_scheduler: the second replaces the '
                                'first; give only one of them')
    # the other order: the second option applies to the new value
    option = ['model.backbone.layer_attention=dict(type=KCLA)', 'model.backbone.layer_attention.head_channels=4']
    assert load_config(DIGITS, option).model.backbone.layer_attention == dict(type='KCLA', head_channels=4)
