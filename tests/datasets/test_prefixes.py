"""``data_prefix``: keys that a class does not read, and folders that do not exist."""
import mmdet.datasets as detection
import mmpretrain.datasets as classification
import mmseg.datasets as segmentation
import pytest
from class_folders import class_config, write_classes
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from seg_folders import seg_config, write_pairs
from tiny import CLASSES, write_coco

from mmkcla.datasets.check import check_config
from mmkcla.datasets.prefixes import prefix_keys
from mmkcla.datasets.report import REFUSED
from mmkcla.datasets.verify import config_reports
from mmkcla.errors import UserError


@pytest.mark.parametrize(('kind', 'keys'), [
    (detection.CocoDataset, {'img', 'seg'}), (detection.CocoPanopticDataset, {'img', 'seg'}),
    (detection.VOCDataset, {'sub_data_root'}), (segmentation.BaseSegDataset, {'img_path', 'seg_map_path'}),
    (segmentation.CityscapesDataset, {'img_path', 'seg_map_path'}),
    (segmentation.BaseCDDataset, {'img_path', 'img_path2', 'seg_map_path'}),
    (segmentation.NYUDataset, {'img_path', 'depth_map_path'}), (classification.CustomDataset, {'img_path'}),
    (classification.ImageNet, {'img_path'})])
def test_keys_that_the_hosts_read(kind, keys):
    assert set(prefix_keys(kind)) == keys


def test_unknown_class():
    class Mine(BaseDataset):
        def load_data_list(self):
            return [dict(path) for path in self.data_prefix.values()]

    class Other(classification.CustomDataset):
        def load_data_list(self):
            return [self.data_prefix['extra'], *super().load_data_list()]

    assert prefix_keys(Mine) is None and prefix_keys(BaseDataset) is None
    assert set(prefix_keys(Other)) == {'img_path', 'extra'}


def refused(config, split='train'):
    """The line that the check and the report have in common."""
    with pytest.raises(UserError) as caught:
        check_config(config, (split,))
    faults = [str(fault) for report in config_reports(config) for fault in report.of(REFUSED)]
    assert str(caught.value) in faults
    return str(caught.value).removeprefix(f'{split}_dataloader.dataset.data_prefix ')


@pytest.mark.parametrize(('more', 'line'), [
    (dict(img='images/train'), "has the key 'img', which BaseSegDataset does not read; write "
                               "data_prefix=dict(img_path='images/train')"),
    (dict(img_path='images/train', seg_map='masks/train'),
     "has the key 'seg_map', which BaseSegDataset does not read; it reads img_path, seg_map_path (did you mean "
     "'seg_map_path'?)"),
    (dict(img_path='images/train', img_path2='x', depth_map_path='y'),
     "has the key 'img_path2', 'depth_map_path', which BaseSegDataset does not read; it reads img_path, seg_map_path")])
def test_segmentation(tmp_path, more, line):
    write_pairs(tmp_path)
    assert refused(seg_config(tmp_path, data_prefix=more)) == line


def test_segmentation_folders(tmp_path, capsys):
    write_pairs(tmp_path)
    prefix = dict(img_path='images/train', seg_map_path='masks/nothing')
    config = seg_config(tmp_path, data_prefix=prefix)
    with pytest.raises(UserError, match='3 of 3 images have no mask'):
        check_config(config, ('train',))
    capsys.readouterr()
    del config.train_dataloader.dataset.pipeline[1]
    check_config(config, ('train',))
    assert capsys.readouterr().err == (f'note: train_dataloader.dataset.data_prefix.seg_map_path: no folder {tmp_path}/'
                                       'masks/nothing; the pipeline does not load these labels\n')
    assert refused(seg_config(tmp_path, data_prefix='images')) == (
        "train_dataloader.dataset.data_prefix='images' must be a dict; write data_prefix=dict(img_path='images')")


def coco_config(root, prefix, steps=()):
    part = dict(type='CocoDataset', data_root=str(root), ann_file='ann.json', data_prefix=prefix,
                metainfo=dict(classes=CLASSES), pipeline=list(steps))
    return Config(dict(default_scope='mmdet', train_dataloader=dict(dataset=part), model=dict(type='FasterRCNN')))


def test_detection(tmp_path, capsys):
    root = write_coco(tmp_path / 'data')
    assert refused(coco_config(root, dict(img_path='images'))) == (
        "has the key 'img_path', which CocoDataset does not read; write data_prefix=dict(img='images')")
    assert refused(coco_config(root, dict(img='images', masks='m'))) == (
        "has the key 'masks', which CocoDataset does not read; it reads img, seg")
    assert "must be a dict; write data_prefix=dict(img='images')" in refused(coco_config(root, 'images'))
    config = coco_config(root, dict(img='images', seg='stuff'))
    capsys.readouterr()
    check_config(config, ('train',))
    assert f'data_prefix.seg: no folder {root}/stuff; the pipeline does not load' in capsys.readouterr().err
    config = coco_config(root, dict(img='images', seg='stuff'), [dict(type='LoadAnnotations', with_seg=True)])
    assert refused(config) == f'no folder {root}/stuff (train_dataloader.dataset.data_prefix.seg)'


def test_classification(tmp_path, capsys):
    write_classes(tmp_path / 'train')
    check_config(class_config(tmp_path, dict(data_prefix=dict(img_path='train'))), ('train',))
    assert capsys.readouterr().err == ''
    assert refused(class_config(tmp_path, dict(data_prefix=dict(img='train')))) == (
        "has the key 'img', which CustomDataset does not read; write data_prefix=dict(img_path='train')")
    with pytest.raises(UserError, match='no image folder'):
        check_config(class_config(tmp_path, dict(data_prefix='nothing')), ('train',))
