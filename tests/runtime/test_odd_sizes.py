"""Images of odd sizes: one that fails is reported and skipped, the others are predicted."""
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from class_folders import class_config, write_classes
from seg_folders import seg_config, write_pairs
from tiny import KCLA, write_coco, write_detector

from mmkcla.cli import main
from mmkcla.datasets.check import check_config
from mmkcla.errors import UserError
from mmkcla.runtime.inference.images import failure
from mmkcla.runtime.inference.run import predict_all
from mmkcla.runtime.inputs import find_images

SIZES = {'wide': (1, 10000), 'high': (10000, 1), 'dot': (1, 1), 'tiny': (2, 3), 'good': (40, 60)}


def write_sizes(folder: Path) -> list[Path]:
    folder.mkdir()
    paths = []
    for name, size in SIZES.items():
        paths.append(folder / f'{name}.png')
        cv2.imwrite(str(paths[-1]), np.full((*size, 3), 90, np.uint8))
    return paths


@pytest.mark.parametrize('batch', [1, 4])
def test_detector(tmp_path, capsys, batch):
    from mmengine.config import Config

    from mmkcla.runtime.hosts import prepare_hosts
    from mmkcla.runtime.inference.base import build_model
    config = write_detector(tmp_path / 'c.py', write_coco(tmp_path / 'data', 1), KCLA)
    content = Config.fromfile(str(config))
    prepare_hosts(content)
    from mmengine.registry import init_default_scope
    init_default_scope('mmdet')
    torch.save(dict(state_dict=build_model(content).state_dict()), tmp_path / 'c.pth')
    write_sizes(tmp_path / 'in')
    assert main(['infer', str(config), str(tmp_path / 'c.pth'), str(tmp_path / 'in'), '--out-dir',
                 str(tmp_path / 'out'), '--device', 'cpu', '--batch-size', str(batch)]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith('error: ')]
    assert [line.split(' pixels')[0] for line in lines[:-1]] == [
        f'error: the test pipeline cannot process the image {tmp_path}/in/high.png (1×10000',
        f'error: the test pipeline cannot process the image {tmp_path}/in/wide.png (10000×1']
    assert [line.partition('pixels): ')[2] for line in lines[:-1]] == [
        f'Resize to (96, 96) with the ratio kept leaves {size} pixels; crop the image, or predict parts of it'
        for size in ('0×96', '96×0')]
    assert lines[-1].startswith('error: 2 of 5 images could not be processed: ')
    assert sorted(path.name for path in (tmp_path / 'out').glob('*.png')) == ['dot.png', 'good.png', 'tiny.png']


def test_reason_of_opencv():
    with pytest.raises(cv2.error) as caught:
        cv2.resize(np.zeros((2, 2), np.uint8), (0, 5))
    assert failure(caught.value) == 'OpenCV cannot resize: inv_scale_x > 0'
    assert failure(ZeroDivisionError('division\nby zero')) == 'division by zero'


def test_skipped_inputs(tmp_path, capsys):
    folder = tmp_path / 'in'
    for name in ('a.png', 'b.gif', 'c.gif', 'd.HEIC', 'notes.txt', 'raw', '.hidden', 'Thumbs.db', 'x/e.jpg',
                 'x/y/f.tif', 'y/g.txt', 'old/predictions.json', 'old/a.png'):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b'')
    assert find_images([str(folder)]) == [folder / 'a.png']
    assert capsys.readouterr().err.splitlines() == [
        f'note: 5 files in {folder} skipped, not of the types .jpg .jpeg .png .bmp .webp .tif .tiff .ppm (2 .gif, 1 '
        '.heic, 1 .txt, 1 no suffix): b.gif, c.gif, d.HEIC and 2 more',
        f'note: 2 images in sub-folders of {folder} skipped; give the folders too: {folder}/x']
    assert find_images([str(folder), str(folder / 'x')]) == [folder / 'a.png', folder / 'x' / 'e.jpg']
    assert f'1 image in sub-folders of {folder} skipped' in capsys.readouterr().err
    find_images([str(folder), str(folder / 'x'), str(folder / 'x' / 'y')])
    assert 'sub-folders' not in capsys.readouterr().err


class Stub:
    """A predictor whose network fails below two pixels, and that cannot draw ``tiny.png``."""

    def load(self, path):
        image = cv2.imread(str(path))
        return image, image

    def predict(self, batch):
        if any(min(image.shape[:2]) < 2 for image in batch):
            raise RuntimeError('Kernel size can not be greater\nthan actual input size')
        return batch

    def files(self, sample, folder, stem):
        return {}

    def record(self, sample, folder, stem):
        return []

    def draw(self, image, sample):
        if image.shape[:2] == SIZES['tiny']:
            raise ValueError('too small to draw')
        return image


@pytest.mark.parametrize('batch', [1, 2, 5])
def test_network_and_drawing_that_fail(tmp_path, capsys, batch):
    done, failed = predict_all(Stub(), write_sizes(tmp_path / 'in'), tmp_path / 'out', batch)
    assert [Path(entry['file']).stem for entry in done] == ['tiny', 'good']
    assert [Path(entry['file']).stem for entry in failed] == ['wide', 'high', 'dot']
    assert failed[0]['reason'] == (f'{tmp_path}/in/wide.png: the network cannot process 10000×1 pixels: Kernel size '
                                   'can not be greater than actual input size')
    assert (f'note: {tmp_path}/in/tiny.png cannot be drawn; its picture is the image alone: too small to draw'
            in capsys.readouterr().err)
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == ['good.png', 'tiny.png']


def test_training_is_refused_where_the_resize_leaves_nothing(tmp_path):
    write_classes(tmp_path / 'a' / 'train')
    write_pairs(tmp_path / 'b')
    resize = dict(type='Resize', scale=(64, 64), keep_ratio=True)
    first = class_config(tmp_path / 'a', dict(pipeline=[dict(type='LoadImageFromFile'), resize]))
    second = seg_config(tmp_path / 'b')
    second.train_dataloader.dataset.pipeline.insert(1, resize)
    for config in (first, second):
        check_config(config, ('train',))
    long = np.zeros((2, 2000, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'a' / 'train' / 'apple' / '0.png'), long)
    cv2.imwrite(str(tmp_path / 'b' / 'images' / 'train' / '0.png'), long)
    cv2.imwrite(str(tmp_path / 'b' / 'masks' / 'train' / '0.png'), np.ones((2, 2000), np.uint8))
    for config in (first, second):
        with pytest.raises(UserError, match='1 image so narrow that the resize of the pipeline leaves nothing of them; '
                                            r'remove or crop them: .*0.png \(2000×2\)'):
            check_config(config, ('train',))
        for step in config.train_dataloader.dataset.pipeline:
            step.pop('keep_ratio', None)
        check_config(config, ('train',))
