"""Hosts that are missing, broken, or of the wrong version; operators that are missing, broken, or crash."""
import sys

import mmdet
import pytest
from doctor_sites import linked_site, run_probes

from mmkcla.doctor import operators
from mmkcla.doctor.openmmlab import imported, remedy_of


@pytest.mark.parametrize('package', ['mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain'])
def test_installed(package):
    found, = imported(package)
    assert (found.level, found.value) == ('ok', sys.modules[package].__version__)


@pytest.mark.parametrize(('package', 'level', 'value', 'remedy'), [
    ('mmdet', 'note', 'not installed; only needed for detection', 'pip install onedl-mmdetection'),
    ('mmseg', 'note', 'not installed; only needed for segmentation', 'pip install onedl-mmsegmentation'),
    ('mmpretrain', 'problem', 'not installed', 'pip install onedl-mmpretrain'),
    ('mmengine', 'problem', 'not installed', 'pip install onedl-mmengine'),
])
def test_missing(monkeypatch, package, level, value, remedy):
    monkeypatch.setitem(sys.modules, package, None)
    found, = imported(package)
    assert (found.level, found.value, found.remedy) == (level, value, remedy)


def test_versions_that_do_not_fit(tmp_path):
    """The hosts assert the version of mmcv at import."""
    site = linked_site(tmp_path / 'site', open_package='mmcv')
    (site / 'mmcv' / 'version.py').unlink()
    (site / 'mmcv' / 'version.py').write_text("__version__ = '1.7.2'\ndef parse_version_info(*_): return 1, 7, 2\n"
                                              'version_info = 1, 7, 2\n')
    found = run_probes(site, 'mmcv', 'mmpretrain', script=tmp_path / 'run.py')
    assert found['mmcv'] == [['mmcv', 'note', 'mmcv 1.7.2 is older than 2.1, the oldest supported version; it may not '
                              'work', "pip install 'mmkcla[onedl]'"]]
    _, level, value, remedy = found['mmpretrain'][0]
    assert level == 'problem' and 'MMCV==1.7.2 is used but incompatible' in value
    assert remedy == "install one line completely: pip install 'mmkcla[onedl]'"


def test_untested_version(monkeypatch):
    monkeypatch.setattr(mmdet, '__version__', '3.99.0')
    found, = imported('mmdet')
    assert (found.level, found.value) == ('note', 'mmdet 3.99.0 is newer than the newest tested version (3.5)')


@pytest.mark.parametrize(('error', 'package', 'remedy'), [
    (ImportError('libGL.so.1: cannot open shared object file'), 'cv2', 'pip uninstall -y opencv-python opencv-'),
    (ValueError('numpy.dtype size changed, may indicate binary incompatibility'), 'pycocotools.mask',
     "it was built for another NumPy: pip install --upgrade --force-reinstall --no-deps 'pycocotools'"),
    (ImportError('numpy.core.multiarray failed to import'), 'cv2', 'it was built for another NumPy'),
    (ModuleNotFoundError('x', name='pkg_resources'), 'mmdet', "pip install 'setuptools<81'"),
    (ModuleNotFoundError('x', name='yaml.x'), 'mmengine', "pip install 'pyyaml'"),
    (AssertionError('MMCV==1'), 'mmdet', 'install one line completely'),
    (ImportError('bad'), 'mmdet', "pip install --force-reinstall --no-deps 'onedl-mmdetection'"),
])
def test_remedies(error, package, remedy):
    assert remedy_of(error, package).startswith(remedy)


def test_wrong_results_of_operators(monkeypatch):
    assert operators.compute('cpu') == ([1, 2], [5.5, 7.5, 25.5, 27.5])
    monkeypatch.setattr(operators, 'compute', lambda _: ([0], [0.] * 4))
    found = [one for one in operators.check() if one.check == 'operators on cpu']
    assert [one.level for one in found] == ['problem'] and 'NMS gave [0]' in found[0].value


def test_without_segmentation_and_with_operators_of_another_torch(tmp_path):
    """mmseg is optional: the others are checked and pass. The operators are replaced, and that is a problem."""
    site = linked_site(tmp_path / 'site', without=('mmseg', 'onedl_mmsegmentation'), open_package='mmcv')
    (site / 'mmcv' / '_ext.cpython-39-x86_64-linux-gnu.so').touch()  # of another Python: ignored by Python
    (site / 'mmcv' / '_ext.so').write_bytes(b'no library')
    found = run_probes(site, 'operators', 'mmdet', 'mmseg', 'registries', 'detector', script=tmp_path / 'run.py')
    assert found['operators'][0][:2] == ['operators', 'problem']
    assert 'the compiled operators of mmcv cannot be loaded; torchvision computes NMS and' in found['operators'][0][2]
    assert found['operators'][1][:2] == ['operators on cpu', 'ok']
    assert found['mmdet'][0][1] == 'ok'
    assert found['mmseg'] == [['mmseg', 'note', 'not installed; only needed for segmentation',
                               'pip install onedl-mmsegmentation']]
    assert {one[1] for one in found['registries']} == {'ok'}
    models = next(one[2] for one in found['registries'] if one[0] == 'model')
    assert 'KCLAResNet' in models and 'UNetHead' not in models
    assert [one[:2] for one in found['detector']] == [['detector on cpu', 'ok']]


def test_operators_that_crash(tmp_path):
    site = linked_site(tmp_path / 'site', open_package='mmcv')
    (site / 'mmcv' / '_ext.py').write_text('import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n')
    found = run_probes(site, 'operators', 'mmdet', 'layer attention', script=tmp_path / 'run.py')
    assert found['operators'][0][1:3] == ['problem', 'the check ended the process (SIGSEGV)']
    assert found['mmdet'][0][1:3] == ['note', "not checked: the check 'operators' ended its process"]
    assert found['layer attention'][0][1] == 'ok'


def test_without_any_package(tmp_path):
    found = run_probes(None, 'Python', 'packages', 'torch', 'torchvision', 'mmdet', 'machine', 'checkpoint',
                       script=tmp_path / 'run.py')
    assert found['Python'][0][1] == 'ok'
    needs = found['packages'][0]
    assert needs[:2] == ['requirements', 'problem']
    assert 'requirements of mmkcla that are not met: torch>=2.1 (not installed), ' in needs[2]
    assert needs[3].startswith("pip install 'torch>=2.1' 'torchvision>=0.16'")
    assert found['torch'][0][1:3] == ['problem', 'not installed']
    assert found['torchvision'][0][1:3] == ['note', 'not checked: torch cannot be imported']
    assert found['checkpoint'][0][1] == 'note'
    assert 'current folder' in [one[0] for one in found['machine']]
