"""Plans for images of 12 bits in 16-bit files: the loaders of the config show them at their full brightness."""
import json

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image
from planned import plan
from tiny import write_coco

from mmkcla.datasets.check import check_config
from mmkcla.datasets.pipelines import image_loader
from mmkcla.plan import machine
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import prepare_hosts


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(machine, '_ram', lambda: 16)


def write_deep(path, seed, bits=12, side=48):
    """A grey 16-bit PNG whose largest value is that of ``bits``."""
    values = np.random.default_rng(seed).integers(0, 2 ** bits, (side, side), dtype=np.uint16)
    values[0, 0] = 2 ** bits - 1
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def check(out, scope, bits=12):
    """Load the config, check its data, and load an image of its training set at full brightness."""
    config = load_config(str(out / 'kcla.py'), [])
    prepare_hosts(config)
    check_config(config, ('train', 'val'))
    from mmengine.registry import TRANSFORMS, init_default_scope
    init_default_scope(scope)
    found = json.loads((out / 'fingerprint.json').read_text())['images']
    assert found['significant_bits'] == bits and 110 < found['mean'][0] < 145
    for split in ('train', 'val'):
        step = image_loader(config[f'{split}_dataloader'].dataset.pipeline)
        assert step['bits'] == bits
        image = next(path for path in sorted(out.parent.rglob('*.png')) if path.parent.name != 'masks'
                     and 'masks' not in path.parts and cv2.imread(str(path), -1).dtype == np.uint16)
        assert TRANSFORMS.build(dict(step))(dict(img_path=str(image)))['img'].max() == 255
    return config


def test_classification(tmp_path, capsys):
    for label, name in enumerate(('cat', 'dog')):
        for number in range(6):
            write_deep(tmp_path / 'data' / name / f'{number}.png', 10 * label + number)
    assert plan('classification', '--images', tmp_path / 'data', '--out', tmp_path / 'out') == 0
    assert '16 bits, of which 12 are used' in capsys.readouterr().out
    assert '4095 becomes 255' in (tmp_path / 'out' / 'README.md').read_text()
    check(tmp_path / 'out', 'mmpretrain')


@pytest.mark.parametrize('classes', [2, 3])
def test_segmentation(tmp_path, classes):
    for number in range(10):
        write_deep(tmp_path / 'images' / f'{number}.png', number, bits=10)
        (tmp_path / 'masks').mkdir(exist_ok=True)
        mask = np.arange(48 * 48, dtype=np.uint8).reshape(48, 48) % classes
        Image.fromarray(mask).save(tmp_path / 'masks' / f'{number}.png')
    more = ['--classes', 'a,b,c'] if classes == 3 else []
    assert plan('segmentation', '--images', tmp_path / 'images', '--masks', tmp_path / 'masks', '--out',
                tmp_path / 'out', *more) == 0
    check(tmp_path / 'out', 'mmseg', 10)
    text = (tmp_path / 'out' / 'kcla.py').read_text()
    assert "__import__('mmkcla').config_file(" in text and "_base_/models/unet_small" not in text
    (tmp_path / 'elsewhere').mkdir()
    copy = tmp_path / 'elsewhere' / 'kcla.py'
    copy.write_text(text)
    assert Config.fromfile(copy).model == Config.fromfile(tmp_path / 'out' / 'kcla.py').model


def test_detection(tmp_path):
    root = write_coco(tmp_path / 'data', 5)
    content = json.loads((root / 'ann.json').read_text())
    for number, image in enumerate(content['images']):
        image['file_name'] = image['file_name'].replace('.jpg', '.png')
        write_deep(root / 'images' / image['file_name'], number, side=96)
    (root / 'ann.json').write_text(json.dumps(content))
    assert plan('detection', '--images', root / 'images', '--annotations', root / 'ann.json', '--out',
                tmp_path / 'out', '--no-pretrained') == 0
    check(tmp_path / 'out', 'mmdet')


def test_class_names_and_sub_folders(tmp_path, capsys):
    for name in ('cat', 'dog', 'dog /old'):
        for number in range(3):
            write_deep(tmp_path / 'data' / name / f'{number}.png', len(name) + 10 * number)
    assert plan('classification', '--images', tmp_path / 'data', '--out', tmp_path / 'out') == 2
    assert "differ only by case or spaces are different classes; merge or rename them: 'dog', 'dog '" in (
        capsys.readouterr().err)
    (tmp_path / 'data' / 'dog ').rename(tmp_path / 'data' / 'dog' / 'more')
    assert plan('classification', '--images', tmp_path / 'data', '--out', tmp_path / 'out') == 0
    assert 'sub-folders of class folders (their images count to the class of the first folder): 1 (dog/more/old)' in (
        capsys.readouterr().out)
