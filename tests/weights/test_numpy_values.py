"""Arrays in checkpoints: those that mmengine and people write come back equal, those made to crash are refused."""
import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import UserError

RECONSTRUCT = np.zeros(1).__reduce__()[0]
FLOAT = np.dtype('f8')
SCALAR = np.float64(1).__reduce__()[0]


class Reduced:
    """An object that pickles as a call, with a state."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def saved(path, value):
    torch.save({'state_dict': {'weight': torch.ones(2)}, 'extra': value}, path)
    return path


@pytest.mark.parametrize('array', [
    np.arange(6.).reshape(2, 3), np.asfortranarray(np.arange(6, dtype='int32').reshape(2, 3)), np.zeros((0, 3), 'u1'),
    np.array(['a', 'bcd']), np.array(3.5), np.array([True, False]), np.arange(3, dtype='>i2'), np.ones(2, 'f2'),
    np.ones(2, 'c8'), np.arange(3, dtype=np.longlong),
], ids=lambda array: f'{array.dtype.str}{array.shape}')
def test_arrays_come_back(tmp_path, array):
    found = read_checkpoint(saved(tmp_path / 'a.pth', {'nested': [(array, 1)]}))['extra']['nested'][0][0]
    assert type(found) is np.ndarray and found.dtype == array.dtype and found.shape == array.shape
    assert np.array_equal(found, array) and found.flags.writeable


@pytest.mark.parametrize('scalar', [np.float32(1.25), np.int64(-3), np.bool_(True), np.str_('ab')])
def test_scalars_come_back(tmp_path, scalar):
    found = read_checkpoint(saved(tmp_path / 'a.pth', scalar))['extra']
    assert type(found) is type(scalar) and found == scalar


def test_shared_arrays_stay_shared(tmp_path):
    array = np.arange(3)
    first, second = read_checkpoint(saved(tmp_path / 'a.pth', [array, array]))['extra']
    assert first is second


def test_history_comes_back(tmp_path):
    history = HistoryBuffer([1., 2., 4.], [1, 1, 2], max_length=5)
    found = read_checkpoint(saved(tmp_path / 'a.pth', {'loss': history}))['extra']['loss']
    assert type(found) is HistoryBuffer and found.mean() == history.mean() and found.max_length == 5
    assert found.data[0].tolist() == [1., 2., 4.] and found.data[1].tolist() == [1, 1, 2]
    found.update(3.)
    assert found.current() == 3.


def array_state(shape=(2,), dtype=FLOAT, fortran=False, data=b'\0' * 16):
    return Reduced(RECONSTRUCT, (np.ndarray, (0,), b'b'), (1, shape, dtype, fortran, data))


def dtype_state(*state, code='f8'):
    return Reduced(np.dtype, (code, False, True), state)


def history_state(**state):
    history = HistoryBuffer()
    history.__dict__ = state
    return history


FIELDS = {'a': (np.dtype('f8'), 0)}
HOSTILE = {
    'too few bytes': array_state(data=b'\0'),
    'too many bytes': array_state(data=b'\0' * 64),
    'huge shape': array_state(shape=(2 ** 62, 8)),
    'negative shape': array_state(shape=(-2,)),
    'shape of text': array_state(shape=('2',)),
    'list for bytes': array_state(data=[1., 2.]),
    'objects': array_state(dtype=np.dtype('O'), data=[{}, {}]),
    'state is no tuple': Reduced(RECONSTRUCT, (np.ndarray, (0,), b'b'), {'a': 1}),
    'without a state': Reduced(RECONSTRUCT, (np.ndarray, (0,), b'b')),
    'called': Reduced(np.ndarray, ((4,), 'f8')),
    'dtype with fields': array_state(dtype=dtype_state(3, '<', None, ('a',), FIELDS, 8, 8, 0)),
    'dtype with a subarray': array_state(dtype=dtype_state(3, '<', (np.dtype('f8'), (4,)), None, None, 32, 8, 0)),
    'dtype with a long state': array_state(dtype=dtype_state(3, '<', None, None, None, 2 ** 40, 1, 0, {})),
    'byte order': array_state(dtype=dtype_state(3, 'x', None, None, None, -1, -1, 0)),
    'byte order of another type': array_state(dtype=dtype_state(3, 7, None, None, None, -1, -1, 0)),
    'dtype of objects': Reduced(np.dtype, ('O',)),
    'dtype of raw memory': Reduced(np.dtype, ('V8',)),
    'dtype of dates': Reduced(np.dtype, ('M8[s]',)),
    'dtype of records': Reduced(np.dtype, ('f8,i4',)),
    'scalar too short': Reduced(SCALAR, (np.dtype('f8'), b'\0')),
    'scalar of an object': Reduced(SCALAR, (np.dtype('f8'), {})),
    'scalar without a dtype': Reduced(SCALAR, ('f8', b'\0' * 8)),
    'history of objects': history_state(_log_history=[1.], _count_history=[1]),
    'history of two lengths': history_state(_log_history=np.ones(2), _count_history=np.ones(3)),
    'history of text': history_state(_log_history=np.array(['a']), _count_history=np.ones(1)),
    'history of length 0': history_state(_log_history=np.ones(1), _count_history=np.ones(1), max_length=0),
    'history without a state': history_state(),
    'history called with code': Reduced(HistoryBuffer, ([1.], [1])),
}


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('value', HOSTILE.values(), ids=HOSTILE)
def test_states_made_to_crash_are_refused(tmp_path, value, zipped):
    path = tmp_path / 'a.pth'
    torch.save({'state_dict': {'weight': torch.ones(2)}, 'extra': [value]}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match='a.pth') as error:
        read_checkpoint(path)
    assert '\n' not in str(error.value)
