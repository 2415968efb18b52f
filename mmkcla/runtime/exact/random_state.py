"""The state of the random number generators of a process, as plain values for a checkpoint."""
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

State = dict[str, Any]


def random_state() -> State:
    """Return the state of Python's, numpy's and torch's generators, and of each CUDA device in use.

    Returns:
        ``python`` (int64, 626: version and state) and ``python_gauss`` (float or None); ``numpy`` (int64, 624),
        ``numpy_position``, ``numpy_has_gauss`` and ``numpy_gauss``; ``torch`` (uint8); ``cuda`` (list of uint8).
    """
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return {'python': torch.tensor([version, *words], dtype=torch.int64), 'python_gauss': gauss,
            'numpy': torch.from_numpy(keys.astype(np.int64)), 'numpy_position': int(position),
            'numpy_has_gauss': int(has_gauss), 'numpy_gauss': float(cached),
            'torch': torch.get_rng_state(), 'cuda': cuda}


def set_random_state(state: State) -> None:
    """Restore what :func:`random_state` returned.

    Raises:
        KeyError, TypeError, ValueError, RuntimeError, AttributeError: it is not such a state.
    """
    version, *words = state['python'].tolist()
    numpy_state = ('MT19937', state['numpy'].numpy().astype(np.uint32), state['numpy_position'],
                   state['numpy_has_gauss'], state['numpy_gauss'])
    random.setstate((version, tuple(words), state['python_gauss']))
    np.random.set_state(numpy_state)
    torch.set_rng_state(state['torch'].cpu())
    devices = state['cuda']
    if devices and torch.cuda.is_available():
        for number in range(min(len(devices), torch.cuda.device_count())):
            torch.cuda.set_rng_state(devices[number].cpu(), number)


def seed_for_sample(key: Sequence[int]) -> None:
    """Seed Python's, numpy's and torch's CPU generators by numbers of at least 0; other devices are left alone."""
    words = np.random.SeedSequence(tuple(key)).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.default_generator.manual_seed(int(words[2]))


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Restore the state of Python's, numpy's and torch's CPU generators after the block."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
