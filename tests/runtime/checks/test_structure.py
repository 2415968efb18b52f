"""Class names and complete splits, which the builders take for granted."""
import pytest
from mmengine.config import Config

from mmkcla.errors import UserError
from mmkcla.runtime.checks.structure import check_splits, check_types

SPLIT = dict(val_dataloader={}, val_cfg={}, val_evaluator={})


@pytest.mark.parametrize('value', [[], [[]], {}, 0, 1.5, True, ('a', ), ['a', 'b'], '', ' '])
@pytest.mark.parametrize('place', ['model', 'default_hooks', 'train_dataloader'])
def test_types_of_other_kinds(place, value):
    with pytest.raises(UserError, match=rf'{place}.inner.0.type=.* is not the name of a class; write text'):
        check_types(Config({place: dict(inner=[dict(type=value)])}))


@pytest.mark.parametrize('value', ['ResNet', dict, len, None])
def test_names_classes_and_functions_are_types(value):
    check_types(Config(dict(model=dict(type=value), not_read=dict(type=0))))


@pytest.mark.parametrize('missing', list(SPLIT))
def test_splits_that_are_not_complete(missing):
    with pytest.raises(UserError, match=rf'^{missing} missing \(or None\) but .* set; set all of val_dataloader'):
        check_splits(Config({**SPLIT, missing: None}))
    check_splits(Config(SPLIT))
    check_splits(Config({}))


def test_log_level():
    with pytest.raises(UserError, match="log_level='LOUD' is unknown; choose one of CRITICAL"):
        check_splits(Config(dict(log_level='LOUD')))
    for level in ('INFO', 'DEBUG', 20):
        check_splits(Config(dict(log_level=level)))
