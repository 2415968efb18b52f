"""What is said about a name: registered, misspelt, of another scope, of a missing package."""
import sys

import pytest

from mmkcla.doctor.names import explain
from mmkcla.runtime.unregistered import explain_package, explain_unregistered

_CUSTOM = 'if it is defined in your own module, import that module with custom_imports'


@pytest.mark.parametrize(('name', 'level', 'value', 'remedy'), [
    ('mmkcla.KCLAResNet', 'ok', 'registered: model of mmkcla', ''),
    ('KCLAResNet', 'ok', "registered: model of mmkcla; write type='mmkcla.KCLAResNet'", ''),
    ('KCLA', 'ok', "a layer attention; write layer_attention=dict(type='KCLA')", ''),
    ('mmkcla.KCLAResNt', 'problem', 'not registered', 'did you mean mmkcla.KCLAResNet?'),
    ('mmkla.KCLAResNet', 'problem', "the package 'mmkla' is not installed", "did you mean 'mmkcla.…'?"),
    ('mmdet.EncoderDecoder', 'problem', 'not registered in mmdet', "write type='mmseg.EncoderDecoder'"),
    ('mmsegmentation.UNet', 'problem', 'the Python package is called mmseg', "write type='mmseg.…'"),
    ('qqqqqq', 'problem', 'not registered', _CUSTOM),
    ('nopackage.Net', 'problem', "the package 'nopackage' is not installed",
     'correct the name, or install the package that defines it'),
])
def test_types(name, level, value, remedy):
    found, = explain(name)
    assert (found.check, found.level, found.value, found.remedy) == (name, level, value, remedy)


@pytest.mark.parametrize('name', ['mmdetection', 'onedl-mmdetection', 'mmdet', 'onedl_mmdetection'])
def test_packages(name):
    found, = explain(name)
    assert found.level == 'ok' and 'in configs it is called mmdet, of the distribution onedl-mmdetection' in found.value


def test_distributions():
    found, = explain('opencv-python')
    assert found.level == 'ok' and found.value.startswith('installed: opencv-python 4')


def test_missing_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, 'mmseg', None)
    found, = explain('mmsegmentation')
    assert (found.level, found.remedy) == ('problem', 'pip install onedl-mmsegmentation')
    found, = explain('mmseg.UNet')
    assert (found.value, found.remedy) == ("the package 'mmseg' is not installed", 'pip install onedl-mmsegmentation')
    assert explain_unregistered('mmseg.UNet', 'mmseg', 'model') == (
        "type='mmseg.UNet' is not in the model registry: the package 'mmseg' is not installed: "
        'pip install onedl-mmsegmentation')
    assert explain_unregistered('mmsegmentation.UNet', 'mmdet', 'model').endswith(
        'registry: the Python package is called mmseg: pip install onedl-mmsegmentation')


def test_package_that_is_installed_and_broken(monkeypatch):
    """mmengine hides the ImportError and says that the type is not in the registry."""
    monkeypatch.setitem(sys.modules, 'mmdet.registry', None)
    assert explain_package('mmdet') is None or 'mmdet' in explain_package('mmdet')[0]
    monkeypatch.delitem(sys.modules, 'mmkcla.registry')
    monkeypatch.setitem(sys.modules, 'mmengine.registry', None)
    reason, remedy = explain_package('mmkcla')
    assert reason.startswith("the package 'mmkcla' cannot be imported (") and remedy == 'run mmkcla doctor'


def test_packages_without_a_registry():
    assert explain_package('mmcv') is None and explain_package('torch') is None
