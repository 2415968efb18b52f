"""The pictures of a test: one for each image, in the sub-folders of the images, with the hooks of all three hosts."""
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData, PixelData

from mmkcla.errors import UserError
from mmkcla.runtime.testing import draw_into
from mmkcla.runtime.visualization import picture_files, skip_what_cannot_be_drawn, write_pictures

CLASSES = dict(classes=('a', 'b'), palette=[(0, 0, 0), (255, 0, 0)])


def detection(path, side):
    from mmdet.structures import DetDataSample
    return DetDataSample(metainfo=dict(img_path=path), pred_instances=InstanceData(
        bboxes=torch.tensor([[2., 2., 9., 9.]]), scores=torch.tensor([.9]), labels=torch.tensor([1])))


def segmentation(path, side):
    from mmseg.structures import SegDataSample
    return SegDataSample(metainfo=dict(img_path=path),
                         pred_sem_seg=PixelData(data=torch.zeros(1, side, side, dtype=torch.long)))


def classification(path, side):
    from mmpretrain.structures import DataSample
    return DataSample(metainfo=dict(img_path=path)).set_pred_label(1).set_pred_score(torch.tensor([.2, .8]))


HOSTS = {'mmdet': detection, 'mmseg': segmentation, 'mmpretrain': classification}


def run_hook(host, paths, folder, listed=True):
    """Draw ``paths`` as a test of ``host`` does; ``listed``: whether the data set names its images."""
    from mmengine.registry import HOOKS, VISUALIZERS
    __import__(f'{host}.engine'), __import__(f'{host}.visualization')
    init_default_scope(host)
    config = Config(dict())
    draw_into(config, host)
    visualizer = VISUALIZERS.build(dict(config.visualizer, name=str(folder)))  # instances live on, by name
    visualizer.dataset_meta = CLASSES
    hook = HOOKS.build(config.default_hooks.visualization)
    hook._visualizer = visualizer
    dataset = SimpleNamespace()
    if listed:
        class Listed(list):
            def get_data_info(self, number):
                return dict(img_path=self[number])
        dataset = Listed(paths)
    warnings = []
    runner = SimpleNamespace(visualizer=visualizer, work_dir='w', timestamp='t',
                             logger=SimpleNamespace(warning=warnings.append),
                             test_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)))
    write_pictures(runner, folder)
    skip_what_cannot_be_drawn(runner)
    side = 32
    for number, path in enumerate(paths):
        inputs = [torch.zeros(3, side, side, dtype=torch.uint8)]
        hook.after_test_iter(runner, number, dict(inputs=inputs), [HOSTS[host](path, side)])
    return warnings


@pytest.fixture
def images(tmp_path):
    paths = [tmp_path / 'data' / name for name in ('a/000.jpg', 'b/000.jpg', 'b/c/000.png', 'b/000.tif')]
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.full((32, 32, 3), 40 * number, np.uint8))
    return [str(path) for path in paths]


@pytest.mark.parametrize('host', HOSTS)
def test_four_images_give_four_pictures(tmp_path, images, host):
    before = {path: Path(path).read_bytes() for path in images}
    assert run_hook(host, images, tmp_path / 'show') == []
    found = sorted(path.relative_to(tmp_path / 'show').as_posix() for path in (tmp_path / 'show').rglob('*')
                   if path.is_file())
    assert found == ['a/000.jpg', 'b/000.jpg', 'b/000.tif.png', 'b/c/000.png']
    assert all(cv2.imread(str(tmp_path / 'show' / name)) is not None for name in found)
    assert {path: Path(path).read_bytes() for path in images} == before


@pytest.mark.parametrize('host', HOSTS)
def test_images_that_the_data_set_does_not_list(tmp_path, images, host):
    run_hook(host, images, tmp_path / 'show', listed=False)
    assert sorted(path.name for path in (tmp_path / 'show').iterdir()) == [
        '000.jpg', '000.png', '000.tif.png', '000_2.jpg']


def test_a_picture_never_overwrites_its_image(tmp_path, images):
    with pytest.raises(UserError, match='contains the image .* which would be overwritten; choose another folder'):
        run_hook('mmdet', images, tmp_path / 'data')


def test_dark_image_is_stretched(tmp_path):
    values = np.tile(np.linspace(0, 4095, 32).astype(np.uint16), (32, 1))
    (tmp_path / 'data').mkdir()
    cv2.imwrite(str(tmp_path / 'data' / '0.png'), values)
    run_hook('mmseg', [str(tmp_path / 'data' / '0.png')], tmp_path / 'show')
    assert cv2.imread(str(tmp_path / 'show' / '0.png')).max() > 100


def test_names():
    assert picture_files(['/x/a.jpg', '/x/b.TIF']) == {'/x/a.jpg': 'a.jpg', '/x/b.TIF': 'b.TIF.png'}
    assert picture_files(['/x/a.jpg', '/y/a.jpg']) == {'/x/a.jpg': 'x/a.jpg', '/y/a.jpg': 'y/a.jpg'}
    assert picture_files(['digit1', 'digit2']) == {'digit1': 'digit1.png', 'digit2': 'digit2.png'}
    assert picture_files([]) == {}
