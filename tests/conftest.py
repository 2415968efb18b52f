"""What all tests share: few threads, a fixed seed, mmcv's operators through torchvision."""
from pathlib import Path

import pytest
import torch
import torch._dynamo
from mmengine.logging import MessageHub, MMLogger
from mmengine.registry import DefaultScope
from mmengine.visualization import Visualizer
from quick_hosts import draw_quickly, freeze_imports, skip_formatting

import mmkcla
from mmkcla.runtime.hooks import curves

torch.set_num_threads(1)
mmkcla.use_torchvision_ops()
skip_formatting()


@pytest.fixture(autouse=True)
def _quick_hosts(monkeypatch):
    freeze_imports()
    monkeypatch.setattr(curves, 'draw_curves', draw_quickly)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_scope_of_another_test():
    """A run leaves its default scope behind: an unscoped type of the next test would be another host's."""
    DefaultScope._instance_dict.clear()


@pytest.fixture(autouse=True)
def _no_log_of_another_test():
    """mmengine names runs by the second: a run of the same second would write to the log of the one before."""
    yield
    for kind in (MMLogger, MessageHub, Visualizer):
        kind._instance_dict.clear()


@pytest.fixture(autouse=True)
def _torch_load_of_another_test(monkeypatch):
    """A command makes ``torch.load`` strict for the rest of its process, which here is that of the next test, too."""
    monkeypatch.setenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '0')


@pytest.fixture(autouse=True)
def _nothing_compiled():
    """torch.compile gives up on a forward that other tests of the same process have compiled eight times."""
    torch._dynamo.reset()


@pytest.fixture(scope='session')
def data_dir() -> Path:
    """Folder of the data the tests ship."""
    return Path(__file__).parent / 'data'
