"""What all tests share: few threads, a fixed seed, mmcv's operators through torchvision."""
from pathlib import Path

import pytest
import torch

import mmkcla

torch.set_num_threads(1)
mmkcla.use_torchvision_ops()


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(scope='session')
def data_dir() -> Path:
    """Folder of the data the tests ship."""
    return Path(__file__).parent / 'data'
