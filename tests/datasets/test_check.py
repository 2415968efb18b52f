"""The look at a config's data before a run: what it finds, and what it says."""
import json
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from tiny import CLASSES, write_coco

from mmkcla.datasets.check import check_config
from mmkcla.errors import UserError
from mmkcla.registry import DATA_CHECKS


@pytest.fixture(scope='module', autouse=True)
def _hosts() -> None:
    from mmkcla.runtime.hosts import import_hosts
    import_hosts(['mmdet'])


@pytest.fixture
def root(tmp_path) -> Path:
    return write_coco(tmp_path / 'coco', images=4)


def _config(root: Path, classes: Any = CLASSES, heads: dict | None = None, **dataset: Any) -> Config:
    data = dict(type='CocoDataset', data_root=str(root), ann_file='ann.json', data_prefix=dict(img='images/'))
    if classes is not None:
        data['metainfo'] = dict(classes=classes)
    data.update(dataset)
    return Config(dict(
        default_scope='mmdet',
        model=heads or dict(type='FasterRCNN', rpn_head=dict(type='RPNHead', num_classes=1),
                            roi_head=dict(bbox_head=dict(num_classes=2), mask_head=dict(num_classes=2))),
        train_dataloader=dict(dataset=data)))


def _message(config: Config, splits=('train', 'val', 'test')) -> str:
    with pytest.raises(UserError) as caught:
        check_config(config, splits)
    message = str(caught.value)
    assert '\n' not in message
    return message


def _edit(root: Path, change) -> None:
    content = json.loads((root / 'ann.json').read_text())
    changed = change(content)
    (root / 'ann.json').write_text(json.dumps(content if changed is None else changed))


def test_good_data_pass(root) -> None:
    check_config(_config(root))


def test_missing_paths_are_told_with_the_layout(root) -> None:
    gone = root.parent / 'gone'
    assert _message(_config(gone)) == (
        f'no data folder {gone} (train_dataloader.dataset.data_root); expected: {gone}/ann.json and the images in '
        f'{gone}/images')
    message = _message(_config(root, ann_file='annotations.json'))
    assert message.startswith(f'no annotation file {root}/annotations.json (train_dataloader.dataset.ann_file); '
                              f'{root} has ann.json; expected: ')
    assert _message(_config(root, data_prefix=dict(img='train2017/'))).startswith(
        f'no image folder {root}/train2017 (train_dataloader.dataset.data_prefix)')
    assert _message(_config(root, ann_file='')) == 'train_dataloader.dataset has no ann_file'


def test_paths_outside_the_data_root(root, tmp_path) -> None:
    check_config(_config(tmp_path, ann_file=str(root / 'ann.json'), data_prefix=dict(img=str(root / 'images'))))
    check_config(_config(root, data_root=None, ann_file=str(root / 'ann.json'),
                         data_prefix=dict(img=str(root / 'images'))))


@pytest.mark.parametrize(('text', 'says'), [
    ('', 'is empty'),
    ('{"images": [', 'is not JSON: Expecting value'),
    ('[1, 2]', "is not in COCO format: no list 'images', 'categories', 'annotations'; it has a list"),
    ('{"images": [], "annotations": []}', "no list 'categories'; it has annotations, images"),
    ('{"images": [], "annotations": [], "categories": []}', 'lists no images'),
    ('{"images": [{"id": 1}], "annotations": [], "categories": []}',
     "entries of 'images' with a file_name that is not text: 1 (entry 0: missing)"),
    ('{"images": [{"id": 1, "file_name": "001.jpg"}], "categories": [{"id": 1, "name": "blue"}]}', "no 'annotations'"),
])
def test_annotation_files_of_another_kind(root, text, says) -> None:
    (root / 'ann.json').write_text(text)
    assert f'{root}/ann.json' in _message(_config(root)) and says in _message(_config(root))


def test_absent_images_are_counted(root) -> None:
    for name in ('002.jpg', '004.jpg'):
        (root / 'images' / name).unlink()
    assert _message(_config(root)) == (
        f'{root}/ann.json: images that are not in {root}/images: 2 (002.jpg, 004.jpg); of 4 images')


def test_images_in_subfolders(root) -> None:
    (root / 'images' / 'a').mkdir()
    (root / 'images' / '001.jpg').rename(root / 'images' / 'a' / '001.jpg')
    _edit(root, lambda content: content['images'][0].update(file_name='a/001.jpg'))
    check_config(_config(root))
    _edit(root, lambda content: content['images'][0].update(file_name='b/001.jpg'))
    assert '1 (b/001.jpg); of 4 images' in _message(_config(root))


def test_classes_without_a_comma(root) -> None:
    assert _message(_config(root, classes=('person'))) == (
        "train_dataloader.dataset.metainfo.classes is the string 'person', so each letter would be a class; "
        "write classes=('person',) with the comma")


def test_classes_from_a_file(root, tmp_path) -> None:
    (tmp_path / 'classes.txt').write_text('blue\ngreen\n')
    check_config(_config(root, classes=str(tmp_path / 'classes.txt')))


def test_a_class_that_the_annotations_lack(root) -> None:
    message = _message(_config(root, classes=('blue', 'gren')))
    assert message == (
        "classes missing from the categories of the annotation file: gren (did you mean 'green'?); "
        f'train_dataloader.dataset.metainfo.classes: blue, gren; categories of {root}/ann.json: blue, green')


def test_no_class_in_common(root) -> None:
    assert _message(_config(root, classes=('cat', 'dog'))).startswith(
        "none of the classes is a category of the annotation file; ")
    # the config forgot metainfo: mmdet would go on with COCO's 80 names and no object
    assert "COCO's 80 are the default: set metainfo=" in _message(_config(root, classes=None))


def test_classes_in_another_order_would_swap_names(root) -> None:
    message = _message(_config(root, classes=('green', 'blue')))
    assert "not in the order of the categories" in message and "write classes=('blue', 'green',)" in message


def test_repeated_class(root) -> None:
    assert _message(_config(root, classes=('blue', 'blue'))).endswith('classes names blue more than once')


def test_heads_count_the_classes(root) -> None:
    heads = dict(rpn_head=dict(num_classes=1), roi_head=dict(bbox_head=dict(num_classes=80)))
    assert _message(_config(root, heads=heads)) == (
        'model.roi_head.bbox_head.num_classes is 80, but train_dataloader.dataset has 2 classes (blue, green); '
        'set --cfg-options model.roi_head.bbox_head.num_classes=2 or change the config')
    cascade = dict(roi_head=dict(bbox_head=[dict(num_classes=2), dict(num_classes=3)]))
    assert 'model.roi_head.bbox_head.1.num_classes is 3' in _message(_config(root, heads=cascade))
    check_config(_config(root, heads=dict(bbox_head=dict(num_classes=2), backbone=dict(num_classes=1000),
                                          semantic_head=dict(num_classes=183))))


def test_no_object_to_train_on(root) -> None:
    _edit(root, lambda content: content.update(annotations=[]))
    assert 'has no objects of the classes blue, green to train on; it has objects of: none' in _message(_config(root))
    config = _config(root)
    config.test_dataloader = config.pop('train_dataloader')
    check_config(config)  # images without objects can be tested on


def test_wrapped_datasets_are_checked(root) -> None:
    plain = _config(root).train_dataloader.dataset
    bad = dict(plain, data_prefix=dict(img='nowhere/'))
    for wrapped, place in (
            (dict(type='RepeatDataset', times=2, dataset=bad), 'dataset.dataset'),
            (dict(type='ConcatDataset', datasets=[plain, bad]), 'dataset.datasets[1]'),
            (dict(type='ClassBalancedDataset', dataset=dict(type='ConcatDataset', datasets=[bad])),
             'dataset.dataset.datasets[0]'),
            (dict(type='MultiImageMixDataset', dataset=bad), 'dataset.dataset')):
        config = _config(root)
        config.train_dataloader.dataset = wrapped
        assert f'(train_dataloader.{place}.data_prefix)' in _message(config)


def test_evaluator_without_its_file(root) -> None:
    config = _config(root)
    config.val_dataloader = dict(dataset=dict(config.train_dataloader.dataset, test_mode=True))
    config.val_evaluator = dict(type='CocoMetric', ann_file='data/coco/val.json')
    assert _message(config) == 'no annotation file data/coco/val.json (val_evaluator.ann_file)'
    check_config(config, ('train',))


def test_test_set_without_annotations(root) -> None:
    _edit(root, lambda content: content.pop('annotations') and None)
    config = _config(root)
    config.test_dataloader = config.pop('train_dataloader')
    config.test_evaluator = dict(type='CocoMetric', format_only=True, ann_file=str(root / 'ann.json'))
    check_config(config)
    config.test_evaluator.format_only = False
    assert "has no 'annotations'" in _message(config)


def test_other_kinds_and_other_file_systems_are_left_alone(root) -> None:
    check_config(_config(root.parent / 'gone', type='LVISV1Dataset'))
    check_config(_config(root, data_root='s3://bucket/coco'))
    check_config(_config(root, data_root='gone', backend_args=dict(backend='petrel')))
    assert set(DATA_CHECKS.module_dict) >= {'CocoDataset'}


def test_unknown_dataset(root) -> None:
    with pytest.raises(KeyError, match='CocoDatset is not in the mmdet::dataset registry'):
        check_config(_config(root, type='CocoDatset'))


def test_a_dataset_of_the_users_is_checked_as_its_parent(root) -> None:
    from mmdet.datasets import CocoDataset
    from mmdet.registry import DATASETS

    @DATASETS.register_module(force=True)
    class Coins(CocoDataset):
        METAINFO = dict(classes=('coin',))

    assert 'none of the classes' in _message(_config(root, classes=None, type='Coins'))


def test_many_images_take_one_look_at_their_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / 'images').mkdir()
    names = [f'{number:012d}.jpg' for number in range(5000)]
    cv2.imwrite(str(tmp_path / 'images' / names[0]), np.zeros((9, 9, 3), np.uint8))
    for name in names[1:]:
        (tmp_path / 'images' / name).hardlink_to(tmp_path / 'images' / names[0])
    (tmp_path / 'ann.json').write_text(json.dumps(dict(
        images=[dict(id=number, file_name=name, width=9, height=9) for number, name in enumerate(names)],
        annotations=[dict(id=number, image_id=number % 5000, category_id=1 + number % 2, bbox=[0, 0, 9, 9],
                          area=81, iscrowd=0)
                     for number in range(20000)],
        categories=[dict(id=1, name='blue'), dict(id=2, name='green')])))
    looks = []
    scandir = os.scandir
    monkeypatch.setattr(os, 'scandir', lambda folder: looks.append(folder) or scandir(folder))
    check_config(_config(tmp_path))
    assert len(looks) <= 3  # one a dataloader, not one a file
