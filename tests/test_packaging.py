"""What pip installs: the package with its configs and tools, usable from any directory."""
import os
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp('wheel')
    source = folder / 'source'  # building leaves files beside the sources
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(
        '.*', 'work_dirs', 'data', 'tests', 'build', '*.egg-info'))
    subprocess.run([sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation', '-q', '-w', str(folder),
                    str(source)], check=True, capture_output=True)
    return next(folder.glob('*.whl'))


def test_wheel_holds_configs_and_tools(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = [path.relative_to(ROOT) for folder in ('configs', 'tools') for path in (ROOT / folder).rglob('*')
               if path.is_file() and '__pycache__' not in path.parts]
    assert {f'mmkcla/.mim/{path.as_posix()}' for path in tracked} <= names and 'mmkcla/.mim/model-index.yml' in names
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'mmkcla').rglob('*.py')}
    assert modules | {'mmkcla/py.typed'} <= names  # the marker of PEP 561: type checkers read the annotations
    assert not [name for name in names if name.startswith('tests') or '__pycache__' in name]


def test_installed_package_finds_its_configs_anywhere(wheel, tmp_path):
    site, elsewhere = tmp_path / 'site', tmp_path / 'elsewhere'
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere.mkdir()
    code = ('from mmkcla.paths import find_config; from mmengine.config import Config; import mmkcla;'
            'c = Config.fromfile(find_config("mask-rcnn_r50-kcla_fpn_1x_coco"));'
            'print(mmkcla.__file__, c.model.backbone.type, c.model.type)')
    result = subprocess.run([sys.executable, '-c', code], cwd=elsewhere, capture_output=True, text=True, check=True,
                            env=os.environ | {'PYTHONPATH': str(site)})
    assert result.stdout.split() == [str(site / 'mmkcla' / '__init__.py'), 'mmkcla.LayerAttentionResNet', 'MaskRCNN']


def test_example_works_with_an_installed_package(wheel, tmp_path):
    site = tmp_path / 'site'
    zipfile.ZipFile(wheel).extractall(site)
    shutil.copytree(ROOT / 'examples' / 'ema_attention', tmp_path / 'mine')
    code = ('from mmkcla.runtime.config import load_config; import sys, mmkcla;'
            'c = load_config("mine/ema_coins.py", []);'
            'print(mmkcla.__file__, c.model.backbone.layer_attention.type, sys.modules["ema_attention"].__file__)')
    result = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True,
                            env=os.environ | {'PYTHONPATH': str(site)})
    assert result.stdout.split() == [str(site / 'mmkcla' / '__init__.py'), 'EMAAttention',
                                     str(tmp_path / 'mine' / 'ema_attention.py')]


def test_no_dependency_pulls_one_openmmlab_line_over_the_other():
    config = ConfigParser()
    config.read(ROOT / 'setup.cfg')
    assert not [line for line in config['options']['install_requires'].split() if 'mm' in line.split('>')[0].lower()]
    extras = config['options.extras_require']
    assert all(line.startswith('onedl-') for line in extras['onedl'].split('\n') if line and not line.startswith('#'))
    assert 'onedl' not in extras['openmmlab']


def test_importing_the_package_imports_no_openmmlab_library():
    code = ('import sys, mmkcla, mmkcla.layers, mmkcla.convert, mmkcla.checkpoint;'
            'sys.exit(any(name in sys.modules for name in ("mmcv", "mmengine", "mmdet", "mmseg", "mmpretrain")))')
    subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)
