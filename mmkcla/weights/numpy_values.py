"""Stand-ins for numpy's classes and mmengine's log histories while a checkpoint is unpickled.

numpy restores arrays and dtypes from whatever state a file holds, and a state made for it crashes the interpreter. The
stand-ins only record the state; :func:`restored` builds the arrays afterwards, from a fixed list of dtypes.
"""
from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

# booleans, integers, floats, complex numbers and text; no objects, records, dates or raw memory
_CODES = re.compile(r'\|?b1|[?bhilqpBHILQPefdFD]|[<>=|]?([iu][1248]|f[248]|c8|c16|U\d{1,6})')
_STATISTICS = ('min', 'max', 'mean', 'current')


class DType:
    """A pickled ``numpy.dtype``."""

    def __init__(self, code: Any = '', *_: Any) -> None:
        if not (isinstance(code, str) and _CODES.fullmatch(code)):
            raise pickle.UnpicklingError(f'unsupported numpy dtype {str(code)[:40]!r}')
        self.value = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, subarray, names, fields, item size, alignment, flags)
        if not (isinstance(state, tuple) and len(state) == 8 and isinstance(state[1], str)
                and state[1] in ('<', '>', '|', '=') and state[2:5] == (None, None, None)):
            raise pickle.UnpicklingError('unsupported numpy dtype: it has fields or metadata')
        if state[1] != '|':
            self.value = self.value.newbyteorder(state[1])


class Array:
    """A pickled ``numpy.ndarray``."""

    value: np.ndarray

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) == 5):
            raise pickle.UnpicklingError('unsupported state of a numpy array')
        _, shape, dtype, fortran, data = state
        if not (isinstance(dtype, DType) and isinstance(data, bytes) and isinstance(shape, tuple)
                and all(type(size) is int and size >= 0 for size in shape)):
            raise pickle.UnpicklingError('unsupported numpy array: its values are not numbers or text')
        if math.prod(shape) * dtype.value.itemsize != len(data):
            raise pickle.UnpicklingError(f'a numpy array of shape {shape} has {len(data)} bytes of {dtype.value}')
        self.value = np.frombuffer(data, dtype.value).reshape(shape, order='F' if fortran else 'C').copy()


class History:
    """A pickled :class:`mmengine.logging.HistoryBuffer`: its numbers, without its methods."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError('unsupported state of a HistoryBuffer')
        self.state = state

    def restore(self) -> Any:
        """The history as mmengine's class."""
        from mmengine.logging.history_buffer import HistoryBuffer
        state = getattr(self, 'state', {})
        log, count = (getattr(state.get(name), 'value', None) for name in ('_log_history', '_count_history'))
        length = state.get('max_length', 1000000)
        if not (isinstance(log, np.ndarray) and isinstance(count, np.ndarray) and log.ndim == 1 == count.ndim
                and len(log) == len(count) and log.dtype.kind in 'biuf' and count.dtype.kind in 'biuf'
                and type(length) is int and length > 0):
            raise pickle.UnpicklingError('a HistoryBuffer without a history of numbers')
        history = HistoryBuffer(max_length=length)
        history._log_history, history._count_history = log, count
        return history


def numpy_globals() -> dict[str, Callable[..., Any]]:
    """The stand-ins, by the dotted names that pickles use. Each value has that name as its own."""
    def reconstruct(kind: Any, shape: Any = (0,), code: Any = b'b') -> Array:
        return Array()

    def scalar(dtype: Any, data: Any = b'') -> Any:
        if not (isinstance(dtype, DType) and isinstance(data, bytes) and len(data) == dtype.value.itemsize):
            raise pickle.UnpicklingError('unsupported numpy scalar')
        return np.frombuffer(data, dtype.value)[0]

    def ndarray(*_: Any) -> None:
        raise pickle.UnpicklingError('unsupported call of numpy.ndarray')

    def no_bytes() -> bytes:  # how pickle writes the content of an empty array
        return b''

    def statistic(owner: Any, name: Any) -> None:
        """``getattr`` of the statistics of log histories, which are not read from files."""
        if not (isinstance(owner, type) and issubclass(owner, History) and name in _STATISTICS):
            raise pickle.UnpicklingError('Trying to load unsupported GLOBAL builtins.getattr')

    found: dict[str, Callable[..., Any]] = {'numpy.ndarray': ndarray, 'numpy.dtype': DType, 'builtins.bytes': no_bytes,
                                            'builtins.getattr': statistic,
                                            'mmengine.logging.history_buffer.HistoryBuffer': History}
    for module in ('numpy.core', 'numpy._core'):  # numpy 1, numpy 2
        found[f'{module}.multiarray._reconstruct'] = reconstruct
        found[f'{module}.multiarray.scalar'] = scalar
    return found


def restored(value: Any, _seen: dict[int, Any] | None = None) -> Any:
    """``value`` with its stand-ins replaced, in place where a container can be changed.

    Raises:
        pickle.UnpicklingError: a stand-in has no valid state.
    """
    seen = {} if _seen is None else _seen
    if isinstance(value, (Array, History, DType)):
        if id(value) not in seen:
            if isinstance(value, Array) and not hasattr(value, 'value'):
                raise pickle.UnpicklingError('a numpy array without a state')
            seen[id(value)] = value.restore() if isinstance(value, History) else value.value
        return seen[id(value)]
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, dict):
        seen[id(value)] = value
        for key in list(value):
            value[key] = restored(value[key], seen)
    elif isinstance(value, list):
        seen[id(value)] = value
        value[:] = [restored(item, seen) for item in value]
    elif type(value) is tuple:
        value = tuple(restored(item, seen) for item in value)
    return value
