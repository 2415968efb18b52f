"""Images that two splits of a config share, for each kind of data set."""
import json
import shutil

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from seed_machine import TINY, write_pairs

from mmkcla.datasets.evaluated_images import shared_images
from mmkcla.runtime.hosts import prepare_hosts


def write_images(folder, names, first=0):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names, first):
        cv2.imwrite(str(folder / name), np.full((8, 8, 3), number, np.uint8))


def coco(root, name, images):
    (root / f'{name}.json').write_text(json.dumps(dict(
        images=[dict(id=i, file_name=file, width=8, height=8) for i, file in enumerate(images)],
        annotations=[dict(id=i + 1, image_id=i, category_id=1, bbox=[1, 1, 4, 4], area=16, iscrowd=0)
                     for i in range(len(images))], categories=[dict(id=1, name='dot')])))


def detection(root, val, test):
    parts = {split: dict(dataset=dict(type='CocoDataset', data_root=str(root), data_prefix=dict(img=folder),
                                      ann_file=f'{file}.json', metainfo=dict(classes=('dot',)), pipeline=[], **more))
             for split, (folder, file, more) in (('val', val), ('test', test))}
    return prepared(dict(default_scope='mmdet', val_dataloader=parts['val'], test_dataloader=parts['test']))


def prepared(config):
    config = Config(config)
    prepare_hosts(config)
    return config


@pytest.fixture
def images(tmp_path):
    write_images(tmp_path / 'a', ['1.png', '2.png', '3.png', '4.png'])
    write_images(tmp_path / 'b', ['1.png', '9.png'], first=3)  # 4.png of the other folder, and a new image
    for name, files in (('val', ['1.png', '2.png']), ('final', ['3.png', '4.png']), ('again', ['2.png', '1.png']),
                        ('other', ['1.png', '9.png']), ('all', ['1.png', '2.png', '3.png', '4.png'])):
        coco(tmp_path, name, files)
    return tmp_path


@pytest.mark.parametrize(('test', 'expected'), [
    (('a', 'final', {}), (0, 2)), (('a', 'again', {}), (2, 2)), (('a', 'all', {}), (2, 4)),
    (('a', 'all', dict(indices=2)), (2, 2)), (('a', 'all', dict(indices=-2)), (0, 2)),
    (('a', 'all', dict(indices=[0, 3])), (1, 2)), (('b', 'other', {}), (0, 2)), (('a', 'missing', {}), None)])
def test_coco_files(images, test, expected):
    assert shared_images(detection(images, ('a', 'val', {}), test), 'val', 'test') == expected


def test_copies_under_other_names(images):
    assert shared_images(detection(images, ('a', 'final', {}), ('b', 'other', {})), 'val', 'test') == (1, 2)


def test_class_folders(images):
    for split in ('val', 'test'):
        for number, name in enumerate(('cat', 'dog')):
            write_images(images / split / name, ['x.png'], first=number + 10 * (split == 'test'))
    loader = {f'{split}_dataloader': dict(dataset=dict(
        type='CustomDataset', data_root=str(images), data_prefix=split, with_label=True, pipeline=[]))
        for split in ('val', 'test')}
    config = prepared(dict(default_scope='mmpretrain', **loader))
    assert shared_images(config, 'val', 'test') == (0, 2)
    shutil.copy(images / 'val' / 'cat' / 'x.png', images / 'test' / 'dog' / 'z.png')
    assert shared_images(config, 'val', 'test') == (1, 3)
    for loader in (config.val_dataloader, config.test_dataloader):
        loader.dataset = dict(type='KFoldDataset', num_splits=2, fold=0, dataset=loader.dataset)
    assert shared_images(config, 'val', 'test') is None  # which part is used is known to mmpretrain only


def test_masks(tmp_path):
    root = write_pairs(tmp_path / 'data')
    config = prepared(Config.fromstring(TINY.replace('{root}', str(root)), '.py').to_dict())
    assert shared_images(config, 'val', 'test') == (0, 2)
    shutil.copy(root / 'images/val/val0.png', root / 'images/test/test1.png')
    assert shared_images(config, 'val', 'test') == (1, 2)
