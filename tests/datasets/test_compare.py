"""What belongs together is compared before a run: data sets, evaluators and the classes of a checkpoint."""
import json
from pathlib import Path

import pytest
from mmengine.config import Config
from tiny import CLASSES, write_coco

from mmkcla.datasets.check import check_config
from mmkcla.datasets.compare import check_checkpoint_classes, compare_config, labels_of
from mmkcla.errors import UserError


@pytest.fixture(scope='module', autouse=True)
def _hosts() -> None:
    from mmkcla.runtime.hosts import import_hosts
    import_hosts(['mmdet', 'mmseg', 'mmpretrain'])


@pytest.fixture
def root(tmp_path) -> Path:
    for split in ('train', 'val', 'other'):
        write_coco(tmp_path / split, images=4, seed=len(split))
    return tmp_path


def coco(root, split, **options):
    data = dict(type='CocoDataset', data_root=str(root / split), ann_file='ann.json', data_prefix=dict(img='images/'),
                metainfo=dict(classes=CLASSES))
    return dict(data, test_mode=split != 'train', **options) if 'test_mode' not in options else dict(data, **options)


def detection(root, val=None, evaluator=None, train=None, **model) -> Config:
    return Config(dict(
        default_scope='mmdet', model=dict(type='FasterRCNN', roi_head=dict(bbox_head=dict(num_classes=2)), **model),
        train_dataloader=dict(dataset=train or coco(root, 'train')),
        val_dataloader=dict(dataset=val or coco(root, 'val')),
        val_evaluator=dict(dict(type='CocoMetric', ann_file=str(root / 'val' / 'ann.json')), **(evaluator or {}))))


def edit(root, split, change) -> None:
    path = root / split / 'ann.json'
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def message(config, splits=('train', 'val')) -> str:
    with pytest.raises(UserError) as error:
        check_config(config, splits)
    assert '\n' not in str(error.value)
    return str(error.value)


# Evaluator and loader -----------------------------------------------------------------------------------------------

def test_what_fits_passes(root) -> None:
    check_config(detection(root))
    (root / 'link.json').symlink_to(root / 'val' / 'ann.json')
    check_config(detection(root, evaluator=dict(ann_file=str(root / 'link.json'))))
    # the same set under another path, with folders in its names and other categories besides
    write_coco(root / 'copy', images=4, seed=3)
    edit(root, 'copy', lambda content: (
        [image.update(file_name='images/' + image['file_name']) for image in content['images']],
        content['categories'].append(dict(id=9, name='red'))))
    check_config(detection(root, evaluator=dict(ann_file=str(root / 'copy' / 'ann.json'))))


def test_another_set_with_the_same_ids(root) -> None:
    edit(root, 'other', lambda content: [image.update(file_name=f'b{image["file_name"]}')
                                         for image in content['images']])
    assert message(detection(root, evaluator=dict(ann_file=str(root / 'other' / 'ann.json')))) == (
        f"val_evaluator.ann_file='{root}/other/ann.json' has other images under 4 of 4 ids (id 1: b001.jpg instead of "
        f'001.jpg); use the file of val_dataloader.dataset: {root}/val/ann.json')


@pytest.mark.parametrize(('change', 'says'), [
    (lambda content: content['images'].pop(), 'lacks 1 of 4 images of the data set (ids 4)'),
    (lambda content: content['images'][0].update(id='1'), "lacks 1 of 4 images of the data set (ids 1)"),
    (lambda content: content['images'][0].update(id=1.5), 'lacks 1 of 4 images of the data set (ids 1)'),
    (lambda content: content['images'].append(dict(id=7, file_name='7.jpg', width=9, height=9)),
     'has 1 images that the data set lacks (ids 7); their objects would count as missed'),
    (lambda content: content['categories'].reverse(),
     'numbers the classes green, blue, val_dataloader.dataset blue, green: results would count for other classes'),
    (lambda content: content['categories'][0].update(name='azure'), 'numbers the classes green, val_dataloader'),
])
def test_ids_and_categories_of_the_evaluator(root, change, says) -> None:
    edit(root, 'other', change)
    assert says in message(detection(root, evaluator=dict(ann_file=str(root / 'other' / 'ann.json'))))


@pytest.mark.parametrize(('indices', 'taken'), [(2, 2), (-1, 1), ([0, 2, 2], 2)])
def test_a_part_of_the_validation_set(root, indices, taken) -> None:
    assert message(detection(root, val=coco(root, 'val', indices=indices))) == (
        f'val_dataloader.dataset.indices takes {taken} of 4 images, but val_evaluator.ann_file has all of them, so the '
        'objects of the others would count as missed; write a file with these images for both, or remove indices')
    check_config(detection(root, val=coco(root, 'val', indices=9)))
    check_config(detection(root, train=coco(root, 'train', indices=2)))
    check_config(detection(root, val=coco(root, 'val', indices=indices), evaluator=dict(ann_file=None)))


def test_repeated_images(root) -> None:
    wrapped = dict(type='RepeatDataset', times=3, dataset=coco(root, 'val'))
    assert message(detection(root, val=wrapped)).startswith(
        "val_dataloader.dataset.type='RepeatDataset' repeats images, so each would be evaluated more than once")
    check_config(detection(root, val=dict(wrapped, times=1), train=dict(wrapped, dataset=coco(root, 'train'))))


def test_two_files_with_equal_ids(root) -> None:
    both = dict(type='ConcatDataset', datasets=[coco(root, 'val'), coco(root, 'other')])
    assert ('val_dataloader.dataset.datasets[1] and val_dataloader.dataset.datasets[0] both have an image with the id '
            '1 (4 such ids), so val_evaluator would confuse them') in message(detection(root, val=both))


def test_filtered_validation_images_are_noted(root, capsys) -> None:
    check_config(detection(root, val=coco(root, 'val', test_mode=False, filter_cfg=dict(filter_empty_gt=True))))
    assert 'filter_cfg without test_mode=True, so images without objects are not evaluated' in capsys.readouterr().err


def test_masks_of_a_model_without(root) -> None:
    assert message(detection(root, evaluator=dict(metric=['bbox', 'segm']))) == (
        "val_evaluator.metric has 'segm', but the model predicts no masks; use metric='bbox'")
    check_config(detection(root, evaluator=dict(metric=['bbox', 'segm']), mask_head=dict(type='SOLOHead')))


# Classes ------------------------------------------------------------------------------------------------------------

def test_the_order_of_the_training_file_decides(root) -> None:
    """Following the old advice, to reorder ``classes``, took AP50 from 1 to .02."""
    edit(root, 'val', lambda content: content['categories'].reverse())
    assert message(detection(root)).startswith(
        'the classes are not in the order of the categories of the annotation file, so their names would be swapped; '
        f'the training has the order blue, green, so put the list "categories" of {root}/val/ann.json in this order')
    followed = detection(root, val=coco(root, 'val') | dict(metainfo=dict(classes=CLASSES[::-1])))
    assert message(followed) == (
        'the classes of val_dataloader.dataset are not those of train_dataloader.dataset: another order (green, blue '
        'instead of blue, green), so labels would be swapped; set the same metainfo=dict(classes=(...,)) for both')
    (root / 'train' / 'ann.json').unlink()  # on a machine without the training set its declared classes decide
    config = detection(root)
    config.test_dataloader, config.test_evaluator = config.pop('val_dataloader'), config.pop('val_evaluator')
    assert 'the training has the order blue, green, so put the list' in message(config, ('test',))


def test_parts_of_a_training_set_with_other_orders(root) -> None:
    edit(root, 'other', lambda content: content['categories'].reverse())
    parts = [coco(root, 'train'), coco(root, 'other') | dict(metainfo=dict(classes=CLASSES[::-1]))]
    config = detection(root, train=dict(type='ConcatDataset', datasets=parts))
    assert ('train_dataloader.dataset.datasets[1] are not those of train_dataloader.dataset.datasets[0]'
            in message(config))


def test_file_order_of_each_part(root) -> None:
    edit(root, 'other', lambda content: content['categories'].reverse())
    config = detection(root, val=coco(root, 'other'), evaluator=dict(ann_file=None))
    with pytest.raises(UserError, match=r'other/ann.json \(val_dataloader.dataset\) orders its categories green, blue, '
                                        r'the training file .*train/ann.json blue, green: the labels would be swapped'):
        compare_config(config, ('val',), {})


def segmentation(**val):
    data = dict(type='BaseSegDataset', metainfo=dict(classes=('road', 'car')), pipeline=[])
    return Config(dict(default_scope='mmseg', model=dict(), train_dataloader=dict(dataset=data),
                       val_dataloader=dict(dataset={**data, **val}), val_evaluator=dict(type='IoUMetric')))


@pytest.mark.parametrize(('val', 'says'), [
    (dict(metainfo=dict(classes=('car', 'road'))), 'another order (car, road instead of road, car)'),
    (dict(metainfo=dict(classes=('road', 'bus'))), 'missing car, unknown to the training bus'),
    (dict(metainfo=dict(classes=('road', 'car', 'bus'))), 'unknown to the training bus'),
    (dict(reduce_zero_label=True), 'val_dataloader.dataset.reduce_zero_label is True, train_dataloader.dataset has '
                                   'False: all labels would be shifted by one'),
    (dict(type='ADE20KDataset'), 'reduce_zero_label is True'),  # the default of that class
])
def test_segmentation(val, says) -> None:
    compare_config(segmentation(), ('train', 'val'), {})
    with pytest.raises(UserError) as error:
        compare_config(segmentation(**val), ('train', 'val'), {})
    assert says in str(error.value)


def test_binary_data_sets_of_one_task() -> None:
    config = segmentation(metainfo=dict(classes=('background', 'lesion')))
    config.train_dataloader.dataset.metainfo.classes = ('background', 'polyp')
    compare_config(config, ('val',), {})


@pytest.mark.parametrize(('metric', 'data', 'says'), [
    ('mmdet.CocoMetric', 'BaseSegDataset', "val_evaluator.type='CocoMetric' is a metric of mmdet, but the data set is "
                                           "one of mmseg (val_dataloader.dataset.type='BaseSegDataset')"),
    ('mmkcla.CocoMetric', 'BaseSegDataset', 'is a metric of mmdet'),
    ('mmkcla.BinarySegMetric', 'mmdet.CocoDataset', 'is a metric of mmseg, but the data set is one of mmdet'),
    ('IoUMetric', 'mmpretrain.CIFAR10', 'is a metric of mmseg, but the data set is one of mmpretrain'),
    ('mmpretrain.Accuracy', 'BaseSegDataset', 'is a metric of mmpretrain, but the data set is one of mmseg'),
    ('IoUMetric', 'BaseSegDataset', None), ('DumpResults', 'BaseSegDataset', None)])
def test_metrics_of_another_library(metric, data, says) -> None:
    config = segmentation()
    for loader in (config.train_dataloader, config.val_dataloader):
        loader.dataset.type = data
    config.val_evaluator.type = metric
    if says is None:
        return compare_config(config, ('val',), {})
    with pytest.raises(UserError) as error:
        compare_config(config, ('val',), {})
    assert says in str(error.value)


def test_heads_of_data_sets_in_another_format() -> None:
    config = Config(dict(default_scope='mmdet', model=dict(bbox_head=dict(num_classes=80)), train_dataloader=dict(
        dataset=dict(type='RepeatDataset', times=3, dataset=dict(type='VOCDataset')))))
    with pytest.raises(UserError, match=r'model.bbox_head.num_classes is 80, but train_dataloader.dataset.dataset has '
                                        r'20 classes \(aeroplane, bicycle, bird and 17 more\)'):
        check_config(config, ('train',))
    config.model.bbox_head.num_classes = 20
    check_config(config, ('train',))


# Checkpoints --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('learned', 'here', 'says'), [
    (('a', 'b'), ('b', 'a'),
     'another order (b, a instead of a, b), so labels would be swapped; the checkpoint decides'),
    (['a', 'b'], ('a', 'c'), 'missing b, unknown to the training c (a, c instead of a, b); use data with the classes'),
    (('a', 'b'), ('a',), 'missing b'), (['a', 'b'], ('a', 'b'), None), (None, ('a',), None), (('a',), None, None),
    (('background', 'polyp'), ('background', 'lesion'), None)])
def test_what_a_checkpoint_learned_decides(learned, here, says) -> None:
    if says is None:
        return check_checkpoint_classes(learned, here, 'x.pth', 'test_dataloader.dataset')
    with pytest.raises(UserError) as error:
        check_checkpoint_classes(learned, here, 'x.pth', 'test_dataloader.dataset')
    start = 'checkpoint x.pth learned other classes than test_dataloader.dataset has: '
    assert str(error.value).startswith(start + says)


def test_labels_of_a_coco_file_are_in_its_order(root) -> None:
    edit(root, 'val', lambda content: content['categories'].reverse())
    assert labels_of(detection(root), 'val') == (['green', 'blue'], 'val_dataloader.dataset')
    assert labels_of(segmentation(), 'val') == (('road', 'car'), 'val_dataloader.dataset')
