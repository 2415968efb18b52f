"""Checkpoints hold plain values, and the ConfigDicts in older ones are read as plain dicts."""
import enum
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import UserError
from mmkcla.weights.plain_values import plain


class Colour(enum.Enum):
    RED = 'red'


class Words(list):
    pass


NESTED = ConfigDict(classes=('a', 'b'), more=dict(parts=[1, dict(x=2.5)], where=Path('a') / 'b'), none=None)


def test_values():
    assert plain(NESTED) == dict(classes=('a', 'b'), more=dict(parts=[1, dict(x=2.5)], where='a/b'), none=None)
    assert type(plain(NESTED)) is dict and type(plain(NESTED)['more']['parts'][1]) is dict
    assert plain(Colour.RED) == 'red' and type(plain(Words('ab'))) is list and plain({1, 2}) == {1, 2}
    assert plain(torch.nn.ReLU) == 'torch.nn.modules.activation.ReLU' and plain(len) == 'builtins.len'
    assert plain(np.array([1, 'x'], dtype=object)) == [1, 'x'] and plain(True) is True
    history = HistoryBuffer([1.], [1])
    assert plain(history) is history
    weights = torch.nn.Linear(1, 1).state_dict()
    assert plain(weights) is weights and weights._metadata
    assert plain(object()).startswith('<object object')


def test_what_is_plain_loads_with_weights_only(tmp_path):
    content = dict(meta=dict(dataset_meta=NESTED, colour=Colour.RED), optimizer=dict(param_groups=[ConfigDict(lr=0.1)]),
                   message_hub=dict(words=Words('ab'), default=defaultdict(list, a=[1])))
    torch.save({key: plain(value) for key, value in content.items()}, tmp_path / 'a.pth')
    assert torch.load(tmp_path / 'a.pth', weights_only=True)['meta']['dataset_meta']['more']['where'] == 'a/b'


@pytest.mark.parametrize('value', [
    NESTED, defaultdict(list, a=[1, ConfigDict(b=2)]), Path('a') / 'b', [ConfigDict(a={1, 2})], OrderedDict(a=NESTED),
    dict(classes=('a', ), nested=ConfigDict(deep=ConfigDict(deeper=ConfigDict(x=1))))])
def test_files_of_plain_mmengine_are_read(tmp_path, value):
    torch.save(dict(meta=dict(dataset_meta=value), state_dict={}), tmp_path / 'a.pth')
    found = read_checkpoint(tmp_path / 'a.pth')['meta']['dataset_meta']
    assert found == plain(value) and 'ConfigDict' not in repr(type(found))


def test_other_classes_are_refused(tmp_path):
    torch.save(dict(meta=dict(a=Words('ab'))), tmp_path / 'a.pth')
    with pytest.raises(UserError, match='contains more than weights'):
        read_checkpoint(tmp_path / 'a.pth')
