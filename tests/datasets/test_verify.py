"""``mmkcla data verify`` refuses what a run refuses, and reports on single files."""
import json
import shutil

import numpy as np
import pytest
from class_folders import class_config, write_classes
from mmengine.config import Config
from PIL import Image
from seg_folders import seg_config, write_pairs
from tiny import write_coco

from mmkcla.cli import main
from mmkcla.datasets.check import check_config
from mmkcla.datasets.report import REFUSED
from mmkcla.datasets.verify import config_reports
from mmkcla.errors import UserError


def coco_config(root, classes):
    part = dict(type='CocoDataset', data_root=str(root), ann_file='ann.json', data_prefix=dict(img='images/'),
                metainfo=dict(classes=classes))
    return Config(dict(default_scope='mmdet', test_dataloader=dict(dataset=part),
                       test_evaluator=dict(type='CocoMetric', ann_file=str(root / 'ann.json')),
                       model=dict(type='FasterRCNN', roi_head=dict(bbox_head=dict(num_classes=2)))))


def both_refuse(config, split):
    """The line that the check before a run and the report have in common."""
    with pytest.raises(UserError) as caught:
        check_config(config, (split,))
    faults = [fault for report in config_reports(config) for fault in report.of(REFUSED)]
    assert [str(fault) for fault in faults] == [str(caught.value)]
    return str(caught.value)


@pytest.mark.parametrize('name', ['Blue', 'blue ', ' blue', 'bleu'])
def test_coco_class_that_the_file_does_not_have(tmp_path, name):
    write_coco(tmp_path / 'data')
    assert both_refuse(coco_config(tmp_path / 'data', (name, 'green')), 'test').startswith(
        f'classes missing from the categories of the annotation file: {name}')
    good = coco_config(tmp_path / 'data', ('blue', 'green'))
    assert not any(report.faults for report in config_reports(good))


def test_coco_classes_in_another_order(tmp_path):
    write_coco(tmp_path / 'data')
    assert 'not in the order of the categories' in both_refuse(
        coco_config(tmp_path / 'data', ('green', 'blue')), 'test')


def test_train_and_val_are_compared(tmp_path):
    for split in ('train', 'val'):
        write_pairs(tmp_path, split=split, seed=len(split))
    config = seg_config(tmp_path)
    val = seg_config(tmp_path, ('sky', 'Tree', 'road'), split='val')
    config.merge_from_dict(dict(val_dataloader=val.val_dataloader, val_evaluator=val.val_evaluator))
    assert both_refuse(config, 'val').startswith('the classes of val_dataloader.dataset are not those of train')


def test_class_folder_that_differs_by_a_space(tmp_path):
    write_classes(tmp_path / 'train')
    write_classes(tmp_path / 'val', ('apple', 'banana ', 'cherry'), seed=1)
    reports = config_reports(class_config(tmp_path))
    assert "by case or spaces; rename them: 1 ('banana ' for 'banana')" in str(reports[1].of(REFUSED)[0])


def test_data_set_without_a_report_is_checked(tmp_path):
    config = Config(dict(default_scope='mmpretrain', test_dataloader=dict(dataset=dict(type='CIFAR10')),
                         model=dict(head=dict(num_classes=11))))
    assert 'model.head.num_classes is 11' in both_refuse(config, 'test')
    config.model.head.num_classes = 10
    with pytest.raises(UserError, match='there is no report for the data sets of this config'):
        config_reports(config)


def verified(capsys, *argv):
    code = main(['data', 'verify', *map(str, argv)])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_nothing_found(tmp_path, capsys):
    (tmp_path / 'empty').mkdir()
    assert verified(capsys, tmp_path / 'empty')[0] == 2
    for name in ('images', 'masks'):
        (tmp_path / 'prepared' / name).mkdir(parents=True)
    code, text = verified(capsys, tmp_path / 'prepared')
    assert code == 1 and 'no images (' in text
    root = write_coco(tmp_path / 'coco')
    (tmp_path / 'far').mkdir()
    shutil.move(root / 'images', tmp_path / 'far' / 'away')
    code, text = verified(capsys, root / 'ann.json')
    assert code == 1 and ('images that are in no folder around the file, so that none was checked: 6 (001.jpg, '
                          '002.jpg, 003.jpg and 3 more); verify a config instead') in text
    content = json.loads((root / 'ann.json').read_text())
    (root / 'ann.json').write_text(json.dumps({**content, 'images': [], 'annotations': []}))
    code, text = verified(capsys, root / 'ann.json')
    assert code == 1 and 'refused: the file lists no images\n' in text


def test_config_without_images(tmp_path, capsys):
    for name in ('images', 'masks'):
        (tmp_path / name / 'train').mkdir(parents=True)
    for unlabelled in (False, True):
        config = seg_config(tmp_path)
        if unlabelled:
            del config.train_dataloader.dataset.pipeline[1]
        config.dump(tmp_path / 'config.py')
        code, text = verified(capsys, tmp_path / 'config.py')
        assert code == 1 and "with img_suffix='.png'" in text


LABELS = np.array([[0, 1, 1, 1], [0, 2, 2, 2]], np.uint8)


@pytest.mark.parametrize(('array', 'palette', 'lines'), [
    (LABELS, None, ['format: PNG, mode L', 'width: 4', 'values: 0 25.00%, 1 37.50%, 2 37.50%', 'no faults']),
    (LABELS, (0, 0, 0, 255, 0, 0, 0, 16, 0), ['mode P', 'values: 0 (#000000) 25.00%, 1 (#ff0000) 37.50%, 2 (#001000)']),
    ((LABELS > 0) * np.uint8(255), None, ['values: 0 25.00%, 255 75.00%', 'note: the values are 0 and 255, and mmseg']),
    (np.dstack([LABELS] * 3), None, ['mode RGB', 'colours: 0 25.00%', 'note: all channels are equal; a mask needs']),
    (np.dstack([LABELS, LABELS + 9]), None, ['mode LA', 'colours: 0 25.00%', 'note: all channels are equal']),
    (np.dstack([LABELS, LABELS * 0, LABELS]), None, ['colours: #000000 25.00%, #010001 37.50%, #020002 37.50%']),
    (np.arange(60, dtype=np.uint16).reshape(6, 10) * 9, None, ['values: 0 to 531, 60 different', 'bits per channel: 16',
                                                               'note: there are values up to 531; a mask needs 8-bit']),
    (np.arange(180, dtype=np.uint8).reshape(6, 10, 3), None, ['colours: 60 different'])])
def test_image_file(tmp_path, capsys, array, palette, lines):
    picture = Image.fromarray(array)
    if palette:
        picture.putpalette(palette)
    picture.save(tmp_path / 'mask.png')
    code, text = verified(capsys, tmp_path / 'mask.png', '--html', tmp_path / 'page.html')
    assert code == 0 and all(line in text for line in lines)
    assert '<img' in (tmp_path / 'page.html').read_text()


def test_damaged_image_file(tmp_path, capsys):
    (tmp_path / 'a.png').write_bytes(b'')
    code, text = verified(capsys, tmp_path / 'a.png')
    assert code == 1 and 'the file is empty' in text
    (tmp_path / 'a.gif').write_bytes(b'GIF89a')
    code, text = verified(capsys, tmp_path / 'a.gif')
    assert code == 2 and 'is neither a config (.py), a COCO file (.json) nor an image' in text
