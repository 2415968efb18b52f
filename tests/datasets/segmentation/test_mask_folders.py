"""Images and masks of any mmseg data set: what is refused, what is said, and what passes."""
import inspect

import mmseg.datasets as host
import numpy as np
import pytest
from mmengine.dataset import BaseDataset
from PIL import Image
from seg_folders import SHAPE, seg_config, write_pairs

from mmkcla.datasets.check import check_config
from mmkcla.errors import UserError
from mmkcla.registry import DATA_CHECKS

TWO = ('background', 'tumour')


def refused(config, split='train') -> str:
    with pytest.raises(UserError) as caught:
        check_config(config, (split,))
    assert '\n' not in str(caught.value)
    return str(caught.value)


def overwrite(path, array, **options):
    Image.fromarray(np.asarray(array)).save(path, **options)


@pytest.mark.parametrize('labels', [(0, 1, 2), (2, 1, 0), (0, 1, 2, 255)])
def test_good_masks_pass_in_silence(tmp_path, capsys, labels):
    check_config(seg_config(write_pairs(tmp_path, labels)), ('train',))
    assert capsys.readouterr().err == ''


def test_masks_without_an_image_are_said(tmp_path, capsys):
    write_pairs(tmp_path)
    (tmp_path / 'images' / 'train' / '2.png').unlink()
    check_config(seg_config(tmp_path), ('train',))
    assert capsys.readouterr().err == (f'note: train_dataloader.dataset: 1 mask without an image, not used: '
                                       f'{tmp_path}/masks/train/2.png\n')


def test_missing_mask(tmp_path):
    write_pairs(tmp_path)
    (tmp_path / 'masks' / 'train' / '1.png').unlink()
    assert refused(seg_config(tmp_path)) == (
        f'train_dataloader.dataset: 1 of 3 images have no mask: {tmp_path}/masks/train/1.png')


@pytest.mark.parametrize(('more', 'words'), [
    (dict(img_suffix='.jpg'), "with img_suffix='.jpg'; it has: .png (3)"),
    (dict(seg_map_suffix='_mask.png'), "3 of 3 images have no mask (seg_map_suffix='_mask.png'; "),
    (dict(data_prefix=dict(img_path='images/nothing', seg_map_path='masks/train')), 'no image folder'),
    (dict(ann_file='list.txt'), "2 images that "),
    (dict(no_such_keyword=1), 'train_dataloader.dataset cannot be built'),
])
def test_wrong_names(tmp_path, more, words):
    write_pairs(tmp_path)
    (tmp_path / 'list.txt').write_text('0\nseven\neight.png\n')
    assert words in refused(seg_config(tmp_path, **more))


def test_annotation_list(tmp_path, capsys):
    write_pairs(tmp_path)
    (tmp_path / 'list.txt').write_text('0\n2\n')
    check_config(seg_config(tmp_path, ann_file='list.txt'), ('train',))
    assert capsys.readouterr().err == ''


def test_other_size(tmp_path):
    write_pairs(tmp_path)
    overwrite(tmp_path / 'masks' / 'train' / '1.png', np.zeros((6, 8), np.uint8))
    assert '1 mask of another size than the image' in (line := refused(seg_config(tmp_path)))
    assert '1.png (8×6, image 16×12)' in line


@pytest.mark.parametrize(('labels', 'head', 'words'), [
    ((0, 1, 2, 3), None, '3 of 3 masks have labels outside the 3 classes 0 to 2 that are not ignored (255); if the '
                         'labels start at 1 and 0 means unlabelled, set reduce_zero_label=True'),
    ((0, 1, 2, 77), None, '(77)'),
    ((0, 1, 255), dict(ignore_index=2), 'that are not ignored (2); set ignore_index=255'),
])
def test_label_outside_the_classes(tmp_path, labels, head, words):
    assert words in refused(seg_config(write_pairs(tmp_path, labels), head=head))


def test_0_255_masks_of_two_classes(tmp_path, capsys):
    write_pairs(tmp_path, (0, 255))
    assert ('all masks have only the values 0 and 255, and 255 is ignored, so nothing but class 0 is learned; load '
            "them with type='mmkcla.LoadBinaryMask', threshold=127") in refused(seg_config(tmp_path, TWO))
    check_config(seg_config(tmp_path, TWO, loader=dict(type='mmkcla.LoadBinaryMask', threshold=127)), ('train',))
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('labels', [(0, 255), (0, 90, 200), (0,), (255,)])
def test_declared_threshold_is_followed(tmp_path, labels):
    """A prepared layout without a manifest, whose pipeline says how to read its masks."""
    for split in ('train', 'val', 'test'):
        write_pairs(tmp_path, labels, split=split, seed=len(split))
    if len(labels) == 1:  # one image with the other value, so that there is something to learn
        overwrite(tmp_path / 'masks' / 'train' / '0.png', np.where(np.eye(*SHAPE), 255, 0).astype(np.uint8))
    config = seg_config(tmp_path, TWO, loader=dict(type='mmkcla.LoadBinaryMask', threshold=127))
    part = config.train_dataloader.dataset
    part.type, part.split = 'mmkcla.BinarySegDataset', 'train'
    del part['data_prefix'], part['img_suffix']
    check_config(config, ('train',))
    del part.pipeline[1]['threshold']
    assert 'is damaged' in refused(config)


def test_threshold_that_does_not_fit(tmp_path):
    config = seg_config(write_pairs(tmp_path, (0, 1)), TWO, loader=dict(type='mmkcla.LoadBinaryMask', threshold=127))
    assert 'contains 0 and 1, so LoadBinaryMask(threshold=127) would make it empty' in refused(config)


@pytest.mark.parametrize(('array', 'words'), [
    (np.zeros((*SHAPE, 3), np.uint8) + np.array([9, 0, 0], np.uint8), '1 of 3 masks are coloured'),
    (np.zeros((*SHAPE, 4), np.uint8) + np.array([0, 0, 1, 0], np.uint8), '1 of 3 masks are coloured'),
    (np.ones((*SHAPE, 3), np.uint8), '1 of 3 masks are grey, but stored in several channels (RGB or with opacity); '
                                     'save them with one channel'),
    (np.zeros((*SHAPE, 4), np.uint8) + np.array([1, 1, 1, 255], np.uint8), '1 of 3 masks are grey, but stored in'),
    (np.zeros((*SHAPE, 2), np.uint8) + np.array([1, 255], np.uint8), '1 of 3 masks are grey, but stored in several'),
    (np.full(SHAPE, 256, np.uint16), '1 of 3 masks are of more than 8 bits with values above 255, which wrap around'),
])
def test_masks_that_hold_no_labels(tmp_path, array, words):
    write_pairs(tmp_path)
    overwrite(tmp_path / 'masks' / 'train' / '1.png', array)
    assert words in refused(seg_config(tmp_path))


def test_deep_mask_with_small_values_passes(tmp_path, capsys):
    check_config(seg_config(write_pairs(tmp_path, dtype=np.uint16)), ('train',))
    assert capsys.readouterr().err == ''


def test_float_mask(tmp_path):
    write_pairs(tmp_path, suffixes=('.png', '.tif'), dtype=np.float32)
    assert 'of floating-point values' in refused(seg_config(tmp_path, seg_map_suffix='.tif'))


@pytest.mark.parametrize('size', [(1, 16), (12, 1), (1, 1)])
def test_mask_of_one_row_or_column(tmp_path, size):
    write_pairs(tmp_path)
    for kind, shape in (('images', (*size, 3)), ('masks', size)):
        overwrite(tmp_path / kind / 'train' / '1.png', np.ones(shape, np.uint8))
    assert 'mmseg cannot load masks of one row or one column' in refused(seg_config(tmp_path))


def test_palette_masks_follow_the_decoder(tmp_path, capsys):
    write_pairs(tmp_path)
    for path in (tmp_path / 'masks' / 'train').iterdir():
        picture = Image.open(path).copy()
        picture.putpalette([10, 20, 30, 200, 0, 0, 0, 200, 0])
        picture.save(path)
    check_config(seg_config(tmp_path), ('train',))  # Pillow gives the indices
    assert capsys.readouterr().err == ''
    assert 'coloured' in refused(seg_config(tmp_path, loader=dict(type='LoadAnnotations', imdecode_backend='cv2')))


def put_palette(folder, colours, number=None):
    """Give the masks of a folder, or one of them, a palette."""
    for path in folder.iterdir():
        if number in (None, int(path.stem)):
            picture = Image.fromarray(np.asarray(Image.open(path)))
            picture.putpalette([part for colour in colours for part in colour])
            picture.save(path)


RGB = ((0, 0, 0), (255, 0, 0), (0, 255, 0))


def test_palettes_of_train_and_val(tmp_path, capsys):
    for split in ('train', 'val'):
        write_pairs(tmp_path, split=split, seed=len(split))
        put_palette(tmp_path / 'masks' / split, RGB)
    config = seg_config(tmp_path)
    val = seg_config(tmp_path, split='val')
    config.merge_from_dict(dict(val_dataloader=val.val_dataloader, val_evaluator=val.val_evaluator))
    check_config(config, ('train', 'val'))
    assert capsys.readouterr().err == ''
    put_palette(tmp_path / 'masks' / 'val', (RGB[0], RGB[2], RGB[1]))
    check_config(config, ('val',))
    folder = tmp_path / 'masks' / 'val'
    assert capsys.readouterr().err == (
        'note: val_dataloader.dataset: 3 of 3 masks whose palette has another colour for a label than '
        'train_dataloader.dataset, so that the label may be another class: '
        + ', '.join(f'{folder}/{n}.png (label 1 (tree): #00ff00 instead of #ff0000)' for n in range(3)) + '\n')


def test_palette_of_one_mask_differs(tmp_path, capsys):
    write_pairs(tmp_path)
    put_palette(tmp_path / 'masks' / 'train', RGB)
    put_palette(tmp_path / 'masks' / 'train', (*RGB[:2], (0, 0, 9)), 2)
    check_config(seg_config(tmp_path), ('train',))
    assert capsys.readouterr().err == (
        'note: train_dataloader.dataset: 1 of 3 masks whose palette has another colour for a label than most of them, '
        f'so that the label may be another class: {tmp_path}/masks/train/2.png (label 2 (road): #000009 instead of '
        '#00ff00)\n')


@pytest.mark.parametrize(('content', 'words'), [
    (b'', 'the file is empty'), (b'text', 'it is not an image'), (None, 'truncated')])
@pytest.mark.parametrize('kind', ['images', 'masks'])
def test_damaged_file(tmp_path, kind, content, words):
    write_pairs(tmp_path)
    path = tmp_path / kind / 'train' / '1.png'
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    line = refused(seg_config(tmp_path))
    assert words in line and f'{kind}/train/1.png' in line


def test_reduce_zero_label_on_labels_from_0(tmp_path):
    write_pairs(tmp_path)
    assert refused(seg_config(tmp_path, reduce_zero_label=True)) == (
        'train_dataloader.dataset: reduce_zero_label=True, but the masks have the labels 0 to 2: class 0 is ignored '
        'and class 2 never occurs; set reduce_zero_label=False')


def test_reduce_zero_label_on_labels_from_1(tmp_path, capsys):
    write_pairs(tmp_path, (0, 1, 2, 3))
    check_config(seg_config(tmp_path, reduce_zero_label=True), ('train',))
    assert capsys.readouterr().err == 'note: train_dataloader.dataset: 25.0% of the pixels become ignored\n'


def test_reduce_zero_label_of_the_step_differs_from_the_data_set(tmp_path):
    write_pairs(tmp_path)
    assert '3 of 3 masks cannot be loaded' in refused(
        seg_config(tmp_path, loader=dict(type='LoadAnnotations', reduce_zero_label=True)))


def test_classes_that_the_config_leaves_out_are_counted(tmp_path, capsys):
    class Streets(host.BaseSegDataset):
        METAINFO = dict(classes=('sky', 'tree', 'road', 'car'), palette=[[i, i, i] for i in range(4)])

    from mmseg.registry import DATASETS
    DATASETS.register_module(module=Streets, force=True)
    write_pairs(tmp_path, (0, 1, 2, 3))
    check_config(seg_config(tmp_path, ('sky', 'tree', 'road'), type='Streets'), ('train',))
    assert '25.0% of the pixels become ignored' in capsys.readouterr().err


def test_empty_and_ignored_masks(tmp_path, capsys):
    write_pairs(tmp_path, (0,))
    assert 'all masks have only class 0 (sky): there is nothing to learn' in refused(seg_config(tmp_path))
    write_pairs(tmp_path, (255,))
    assert 'every pixel of the masks is ignored' in refused(seg_config(tmp_path, ('a', 'b', 'c')))
    write_pairs(tmp_path, (0, 1))
    overwrite(tmp_path / 'masks' / 'train' / '1.png', np.full(SHAPE, 255, np.uint8))
    check_config(seg_config(tmp_path), ('train',))
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix('note: train_dataloader.dataset: ') for line in lines] == [
        '1 class without a pixel in the masks: road',
        f'1 mask with every pixel ignored: {tmp_path}/masks/train/1.png']


@pytest.mark.parametrize('orientation', [3, 6, 8])
def test_image_that_its_orientation_turns(tmp_path, orientation, capsys):
    write_pairs(tmp_path, suffixes=('.jpg', '.png'))
    exif = Image.Exif()
    exif[0x0112] = orientation
    overwrite(tmp_path / 'images' / 'train' / '1.jpg', np.zeros((*SHAPE, 3), np.uint8), exif=exif)
    config = seg_config(tmp_path, img_suffix='.jpg')
    if orientation == 3:  # upside down: the sizes agree
        check_config(config, ('train',))
        assert capsys.readouterr().err == (
            'note: train_dataloader.dataset: 1 image turned or mirrored by the EXIF orientation, with a mask of the '
            'same size without one; if the pictures of mmkcla data verify show that the masks do not fit, save the '
            f'images upright: {tmp_path}/images/train/1.jpg\n')
        return
    assert '1 mask of the stored image, which is turned by its EXIF orientation' in refused(config)
    check_config(seg_config(tmp_path, img_suffix='.jpg', image_loader=dict(
        type='LoadImageFromFile', color_type='color_ignore_orientation')), ('train',))


def write_square(root, image_orientation, mask_orientation):
    """Pairs with one square image, and the EXIF orientations of the image and of its mask."""
    write_pairs(root)
    for folder, array, tag in (('images', np.zeros((12, 12, 3), np.uint8), image_orientation),
                               ('masks', np.arange(144).reshape(12, 12).astype(np.uint8) % 3, mask_orientation)):
        exif = Image.Exif()
        exif[0x0112] = tag
        overwrite(root / folder / 'train' / '1.png', array, exif=exif)


@pytest.mark.parametrize('orientation', range(1, 9))
def test_square_image_with_an_orientation(tmp_path, capsys, orientation):
    write_square(tmp_path, orientation, 1)
    check_config(seg_config(tmp_path), ('train',))
    assert ('1 image turned or mirrored by the EXIF' in capsys.readouterr().err) == (orientation != 1)
    stored = dict(type='LoadImageFromFile', color_type='color_ignore_orientation')
    check_config(seg_config(tmp_path, image_loader=stored), ('train',))
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('orientation', range(2, 9))
def test_mask_with_an_orientation(tmp_path, capsys, orientation):
    write_square(tmp_path, orientation, orientation)  # mmseg turns the image, but not the mask
    line = '1 mask with an EXIF orientation that is not applied as that of the image; save images and masks upright'
    assert line in refused(seg_config(tmp_path))
    check_config(seg_config(tmp_path, image_loader=dict(type='LoadImageFromFile', color_type='unchanged')), ('train',))
    two = dict(classes=TWO, loader=dict(type='mmkcla.LoadBinaryMask', threshold=0))
    check_config(seg_config(tmp_path, **two), ('train',))
    assert capsys.readouterr().err == ''
    unturned = dict(type='LoadImageFromFile', color_type='color_ignore_orientation')
    assert line in refused(seg_config(tmp_path, image_loader=unturned, **two))


def test_head(tmp_path):
    config = seg_config(write_pairs(tmp_path))
    config.model.decode_head.num_classes = 4
    assert refused(config).startswith('model.decode_head.num_classes is 4, but train_dataloader.dataset has 3 classes')


def test_test_set_without_masks(tmp_path):
    write_pairs(tmp_path, split='test')
    config = seg_config(tmp_path, split='test', data_prefix=dict(img_path='images/test'))
    config.test_dataloader.dataset.pipeline.pop(1)
    config.test_evaluator.format_only = True
    check_config(config, ('test',))


def test_same_image_in_train_and_val(tmp_path, capsys):
    write_pairs(tmp_path)
    write_pairs(tmp_path, split='val', seed=1)
    config, val = seg_config(tmp_path), seg_config(tmp_path, split='val')
    config.val_dataloader, config.val_evaluator = val.val_dataloader, val.val_evaluator
    check_config(config, ('train', 'val'))
    assert capsys.readouterr().err == ''
    (tmp_path / 'images/val/2.png').write_bytes((tmp_path / 'images/train/0.png').read_bytes())
    check_config(config, ('val',))
    assert capsys.readouterr().err == (
        'note: val_dataloader.dataset: 1 of 3 images are also in train_dataloader.dataset, so the metrics are too '
        f'optimistic: {tmp_path}/images/val/2.png\n')


def test_every_data_set_of_the_host_is_decided():
    DATA_CHECKS.import_from_location()
    known = set(DATA_CHECKS.module_dict)
    kinds = {name: kind for name, kind in vars(host).items() if inspect.isclass(kind) and issubclass(kind, BaseDataset)}
    assert len(kinds) >= 25
    undecided = [name for name, kind in kinds.items() if not known & {parent.__name__ for parent in kind.__mro__}]
    assert not undecided


# files of each data set: the suffixes are its own
@pytest.mark.parametrize('name', sorted(
    name for name, kind in vars(host).items() if inspect.isclass(kind) and issubclass(kind, host.BaseSegDataset)
    and name not in ('BaseSegDataset', 'NYUDataset', 'HSIDrive20Dataset', 'DecathlonDataset', 'DSDLSegDataset',
                     'OneDLDataset')))
def test_stock_data_sets_pass(tmp_path, name, capsys):
    kind = getattr(host, name)
    defaults = inspect.signature(kind).parameters
    images, masks = (defaults[key].default if key in defaults else other
                     for key, other in (('img_suffix', '.jpg'), ('seg_map_suffix', '.png')))
    if name == 'REFUGEDataset':
        images = '.png'
    reduce = 'reduce_zero_label' in defaults and bool(defaults['reduce_zero_label'].default)
    classes = len(kind.METAINFO['classes'])
    write_pairs(tmp_path, tuple(range(reduce, classes + reduce))[-16:], suffixes=(images, masks))
    (tmp_path / 'list.txt').write_text('0\n1\n2\n')
    config = seg_config(tmp_path, None, type=name)
    config.model.decode_head.num_classes = classes
    part = config.train_dataloader.dataset
    del part['img_suffix']
    if 'ann_file' in defaults and defaults['ann_file'].default is inspect.Parameter.empty:
        part.ann_file = 'list.txt'
    check_config(config, ('train',))
    lines = capsys.readouterr().err.splitlines()
    assert all('without a pixel' in line for line in lines)  # 16 stripes hold 16 classes
