"""The package as a whole: what ``import mmkcla`` gives and what it does not import."""
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import mmkcla

ROOT = Path(__file__).parents[1]
HEAVY = ('torch', 'numpy', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'cv2')


def run(code: str) -> str:
    result = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_the_import_is_light():
    assert run(f'import sys, mmkcla; print(sorted(set({HEAVY}) & sys.modules.keys()))') == '[]\n'


def test_layers_need_torch_alone():
    hosts = HEAVY[2:-1]
    code = ('import sys, mmkcla; mmkcla.layers.KCLA(64); mmkcla.errors; mmkcla.convert; mmkcla.checkpoint; '
            f'print(sorted(set({hosts}) & sys.modules.keys()))')
    assert run(code) == '[]\n'


def test_parts_are_attributes():
    for name in mmkcla.PARTS:
        assert getattr(mmkcla, name).__name__ == f'mmkcla.{name}' and name in dir(mmkcla)
    assert mmkcla.models.backbones.KCLAResNet is mmkcla.registry.MODELS.get('KCLAResNet')
    with pytest.raises(AttributeError, match="module 'mmkcla' has no attribute 'nothing'"):
        mmkcla.nothing  # noqa: B018


def test_everything_can_be_registered_at_once():
    names = run('import mmkcla; mmkcla.register_all_modules(); from mmkcla import registry\n'
                'print(*registry.MODELS.module_dict, *registry.DATASETS.module_dict, *registry.TRANSFORMS.module_dict, '
                '*registry.METRICS.module_dict, *registry.HOOKS.module_dict)').splitlines()[-1].split()
    assert {'KCLAResNet', 'KCLAFPN', 'UNetHead', 'EAPSMNet', 'ISIC2017Dataset', 'StereoPairDataset', 'LoadBinaryMask',
            'LoadStereoPair', 'BinarySegMetric', 'StereoMetric', 'CocoMetric', 'CurvesHook'} <= set(names)


def test_a_name_that_has_moved_is_found_with_a_warning():
    from mmkcla import evaluation
    from mmkcla.stereo.metric import StereoMetric
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        assert evaluation.StereoMetric is StereoMetric
    assert [str(warning.message) for warning in caught] == [
        'mmkcla.evaluation.StereoMetric has moved to mmkcla.stereo.metric']
    with pytest.raises(AttributeError, match="module 'mmkcla.evaluation' has no attribute 'nothing'"):
        evaluation.nothing  # noqa: B018
