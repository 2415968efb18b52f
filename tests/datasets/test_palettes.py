"""Palettes that do not fit the classes: completed or cut, so that pictures can be drawn."""
import numpy as np
import pytest
from mmdet.visualization import DetLocalVisualizer
from mmdet.visualization.palette import get_palette
from mmengine.config import Config
from seg_folders import seg_config, write_pairs

from mmkcla.datasets.check import datasets_of
from mmkcla.datasets.palettes import COLOURS, filled, fit_palettes


def test_filled():
    assert filled([[1, 2, 3]], 3) == [(1, 2, 3), COLOURS[0], COLOURS[1]]
    assert filled([COLOURS[1]], 3) == [COLOURS[1], COLOURS[0], COLOURS[2]]  # no colour twice
    assert filled([(1, 2, 3), (4, 5, 6)], 1) == [(1, 2, 3)]
    many = filled([], 300)
    assert many == filled([], 300) and len(set(many)) == 300
    assert np.array(many).min() >= 0 and np.array(many).max() <= 255
    assert filled('coco', 2) == list(COLOURS[:2])


@pytest.mark.parametrize(('colours', 'words'), [
    (1, '1 colour for 3 classes; the missing ones are added'), (3, ''),
    (5, '5 colours for 3 classes; the last ones are not used')])
def test_mmseg_builds_and_keeps_what_is_given(tmp_path, capsys, colours, words):
    config = seg_config(write_pairs(tmp_path))
    palette = [[number, 9, 9] for number in range(colours)]
    part = config.train_dataloader.dataset
    part.metainfo.palette = palette
    fit_palettes(config)
    built, = datasets_of(config, 'train')
    made = built.kind(**{key: value for key, value in built.config.items()
                         if key not in ('type', 'pipeline')}).metainfo['palette']
    assert [list(colour) for colour in made[:colours]] == palette[:3] and len(made) == 3
    lines = capsys.readouterr().err
    assert lines == (f'note: train_dataloader.dataset.metainfo.palette has {words}\n' if words else '')


def test_mmdet_draws_with_lists_and_with_more_classes_than_colours(capsys):
    names = tuple(f'class{number}' for number in range(90))  # COCO's palette has 80
    config = Config(dict(default_scope='mmdet', test_dataloader=dict(dataset=dict(
        type='CocoDataset', metainfo=dict(classes=names))), val_dataloader=dict(dataset=dict(
            type='CocoDataset', metainfo=dict(classes=('a', 'b'), palette=[[1, 2, 3], [4, 5, 6]])))))
    __import__('mmdet.datasets')
    fit_palettes(config)
    palette = config.test_dataloader.dataset.metainfo.palette
    assert len(get_palette(palette, 90)) == 90
    assert capsys.readouterr().err == ('note: test_dataloader.dataset.metainfo.palette has 80 colours for 90 classes; '
                                       'the missing ones are added\n')
    meta = config.val_dataloader.dataset.metainfo
    assert list(meta.palette) == [(1, 2, 3), (4, 5, 6)]
    import torch
    from mmengine.structures import InstanceData
    visualizer = DetLocalVisualizer()
    visualizer.dataset_meta = dict(meta)
    picture = visualizer._draw_instances(np.zeros((40, 40, 3), np.uint8), InstanceData(
        bboxes=torch.tensor([[2., 2., 30., 30.]]), labels=torch.tensor([1])), meta.classes, meta.palette)
    assert picture.any()


def test_palettes_of_the_host_stay(capsys):
    config = Config(dict(default_scope='mmdet', test_dataloader=dict(dataset=dict(
        type='CocoDataset', metainfo=dict(classes=('a', 'b'))))))
    before = config.to_dict()
    fit_palettes(config)
    assert config.to_dict() == before and capsys.readouterr().err == ''
