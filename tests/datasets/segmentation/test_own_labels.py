"""Own data of more than two classes, read by mmseg's own data set and measured by its IoU."""
import io
import json

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, METRICS, init_default_scope
from PIL import Image

pytest.importorskip('skimage')

from medical_files import encode, manifest
from own_folders import crops, labels, own, write

from mmkcla.datasets.check import check_config
from mmkcla.datasets.segmentation.converters.class_names import choose_rule
from mmkcla.datasets.segmentation.converters.folders import convert_folders
from mmkcla.datasets.segmentation.verify import check
from mmkcla.errors import UserError

NAMES = [f'a{i}' for i in range(10)]
CLASSES = ('dark', 'light', 'stained')
COLOURS = np.array([[0, 0, 0], [200, 200, 200], [150, 75, 0]], np.uint8)


def convert(root, **options):
    outcome = convert_folders(root / 'images', root / 'masks', root / 'out', progress=False, **options)
    assert not check(root / 'out').problems
    return outcome


def label_folders(root, encode_labels=encode, image_end='.jpg'):
    own(root, NAMES, image_end=image_end)
    for name, crop in zip(NAMES, crops(), strict=True):
        write(root / 'masks', {f'{name}.png': encode_labels(labels(crop))})
    return root


def indexed(values):
    """As PNG of mode P, with VOC-like colours."""
    picture = Image.fromarray(values, 'P')
    picture.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
    buffer = io.BytesIO()
    picture.save(buffer, 'PNG')
    return buffer.getvalue()


def stored(root, name, split='train'):
    with Image.open(root / 'out' / 'masks' / split / f'{name}.png') as mask:
        assert mask.mode == 'L'
        return np.asarray(mask)


def build(root, split, **options):
    init_default_scope('mmseg')
    return DATASETS.build(dict(
        type='mmseg.BaseSegDataset', data_root=str(root / 'out'), metainfo=dict(classes=CLASSES),
        data_prefix=dict(img_path=f'images/{split}', seg_map_path=f'masks/{split}'), pipeline=[
            dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')], **options))


@pytest.mark.parametrize(('how', 'options'), [
    (encode, dict(classes=CLASSES)), (encode, dict(classes='dark, light, stained', num_classes=3)),
    (indexed, dict(classes=CLASSES)), (lambda values: encode(COLOURS[values]), dict(palette={
        'dark': '#000000', 'light': '#c8c8c8', 'stained': [150, 75, 0]})),
    (lambda values: encode(np.stack([values] * 3, -1)), dict(classes=CLASSES)),
], ids=['values', 'number', 'indices', 'colours', 'grey rgb'])
def test_labels_arrive_as_they_are(tmp_path, how, options):
    label_folders(tmp_path, how)
    outcome = convert(tmp_path, split='train', **options)
    assert outcome.notes == ("images have one suffix: img_suffix='.jpg'",)
    content = manifest(tmp_path / 'out')
    assert content['classes'] == list(CLASSES) and content['ignore_index'] == 255
    for name, crop in zip(NAMES, crops(), strict=True):
        assert np.array_equal(stored(tmp_path, name), labels(crop))
    total = np.bincount(np.concatenate([labels(crop).ravel() for crop in crops()]), minlength=3)
    assert content['pixels'] == dict(zip(CLASSES, total.tolist(), strict=True)) and total.all()


def test_mmseg_reads_and_measures_it(tmp_path):
    label_folders(tmp_path)
    convert(tmp_path, classes=CLASSES, split='8:2')
    data = build(tmp_path, 'test')
    metric = METRICS.build(dict(type='mmseg.IoUMetric', iou_metrics=['mIoU', 'mDice']))
    metric.dataset_meta = data.metainfo
    inter, union = np.zeros(3), np.zeros(3)
    for sample in data:
        truth = sample['data_samples'].gt_sem_seg.data
        name = sample['data_samples'].img_path.split('/')[-1][:-4]
        assert np.array_equal(truth[0].numpy(), labels(crops()[NAMES.index(name)]))
        guess = torch.where(truth == 1, 0, truth)
        for label in range(3):
            inter[label] += ((truth == label) & (guess == label)).sum()
            union[label] += ((truth == label) | (guess == label)).sum()
        metric.process({}, [dict(pred_sem_seg=dict(data=guess), gt_sem_seg=dict(data=truth))])
    result = metric.evaluate(len(data))
    assert len(data) == 2 and result['mIoU'] < 90
    assert result['mIoU'] == pytest.approx(100 * (inter / union).mean(), abs=0.01)


def test_ignored_and_absent_classes_are_counted(tmp_path):
    own(tmp_path, NAMES[:4])
    for name, crop in zip(NAMES, crops(4), strict=False):
        values = labels(crop)
        values[:2] = 255
        write(tmp_path / 'masks', {f'{name}.png': encode(values)})
    outcome = convert(tmp_path, split='train', num_classes=4)
    ignored = sum(2 * crop.mask.shape[1] for crop in crops(4))
    pixels = sum(crop.mask.size for crop in crops(4))
    assert outcome.notes[1:] == ('without a pixel in any mask: class_3',
                                 f'{ignored} pixels ({100 * ignored / pixels:.1f} %) in 4 masks are 255 ("ignore")')
    assert manifest(tmp_path / 'out')['ignored_pixels'] == ignored and (stored(tmp_path, 'a0')[:2] == 255).all()
    path = tmp_path / 'out/masks/train/a0.png'
    path.write_bytes(encode(np.where(stored(tmp_path, 'a0') == 2, 7, 0)))
    assert any('masks/train/a0.png: the values 0, 7, where 0 to 3 and 255 ("ignore") are expected' in problem
               for problem in check(tmp_path / 'out').problems)


def test_a_class_that_is_only_in_test_is_named(tmp_path):
    own(tmp_path, ['train/a', 'train/b', 'test/c'])
    for name, crop in zip(('train/a', 'train/b', 'test/c'), crops(3), strict=True):
        values = labels(crop)
        write(tmp_path / 'masks', {f'{name}.png': encode(values if 'c' in name else np.minimum(values, 1))})
    assert 'without a pixel in train: stained' in convert(tmp_path, classes=CLASSES).notes


def test_mixed_suffixes_become_png_without_loss(tmp_path):
    label_folders(tmp_path)
    crop = crops()[1]
    (tmp_path / 'images/a1.jpg').unlink()
    Image.fromarray(crop.pixels).save(tmp_path / 'images/a1.tif')
    outcome = convert(tmp_path, classes=CLASSES, split='train')
    assert outcome.notes == ('images of .jpg, .tif are all written as PNG (lossless), for one img_suffix',
                             "images have one suffix: img_suffix='.png'")
    assert len(build(tmp_path, 'train', img_suffix='.png')) == 10
    for name, source in (('a0', tmp_path / 'images/a0.jpg'), ('a1', tmp_path / 'images/a1.tif')):
        with Image.open(source) as before, Image.open(tmp_path / f'out/images/train/{name}.png') as after:
            assert np.array_equal(np.asarray(before), np.asarray(after))


def test_one_turned_image_makes_all_png(tmp_path):
    label_folders(tmp_path)
    exif, crop = Image.Exif(), crops()[2]
    exif[0x0112] = 6
    Image.fromarray(crop.pixels).transpose(Image.Transpose.ROTATE_90).save(tmp_path / 'images/a2.jpg', exif=exif)
    assert 'some images are turned by EXIF data' in convert(tmp_path, classes=CLASSES, split='train').notes[0]
    assert {path.suffix for path in (tmp_path / 'out/images/train').iterdir()} == {'.png'}
    assert Image.open(tmp_path / 'out/images/train/a2.png').size == crop.mask.shape[::-1]


def test_folds_are_lists_for_mmseg(tmp_path):
    label_folders(tmp_path)
    convert(tmp_path, classes=CLASSES, folds=3)
    folds = json.loads((tmp_path / 'out/folds.json').read_text())['folds']
    for number, fold in enumerate(folds):
        for part, count in (('val', len(fold)), ('train', 10 - len(fold))):
            data = build(tmp_path, 'train', ann_file=f'folds/{number}_{part}.txt')
            assert len(data) == count
            here = {data.get_data_info(i)['img_path'].split('/')[-1][:-4] for i in range(count)}
            assert here == (set(fold) if part == 'val' else set(NAMES) - set(fold))


def test_labels_that_are_refused(tmp_path):
    label_folders(tmp_path)
    refuse = lambda message, **options: pytest.raises(UserError, match=message)  # noqa: E731
    with refuse(r'^masks/a0.png: the value 2, but there are 2 classes \(values 0 to 1, and 255 for "ignore"\)$'):
        convert(tmp_path, num_classes=2)
    with refuse(r'^masks/a0.png: the colour #0[0-9a-f]{5}(, #[0-9a-f]{6})* is not in the palette$'):
        convert(tmp_path, palette={'a': '#ffffff', 'b': '#00ff00'})
    write(tmp_path / 'masks', {'a0.png': encode(COLOURS[labels(crops()[0])])})
    with refuse(r'^masks/a0.png: a coloured mask: give the colours of the classes \(--palette FILE'):
        convert(tmp_path, classes=CLASSES)
    (tmp_path / 'masks/a0.png').unlink()
    write(tmp_path / 'masks', {'a0.jpg': encode(labels(crops()[0]), 'JPEG')})
    with refuse(r'^masks/a0.jpg: a JPEG mask: its compression changes labels; save masks as PNG$'):
        convert(tmp_path, classes=CLASSES)
    (tmp_path / 'masks/a0.jpg').unlink()
    Image.fromarray(labels(crops()[0]).astype(np.uint16) * 300).save(tmp_path / 'masks/a0.png')
    with refuse(r'^masks/a0.png: values from 0 to 600; labels are whole numbers from 0 to 254, and 255 for "ignore"$'):
        convert(tmp_path, classes=CLASSES)
    Image.fromarray(labels(crops()[0]).astype(np.uint16)).save(tmp_path / 'masks/a0.png')
    convert(tmp_path, classes=CLASSES)


def test_palette_files(tmp_path):
    (tmp_path / 'p.txt').write_text('# colours\nbackground,#000000\nround, big,FF0000\nignore,#ffffff\n')
    (tmp_path / 'p.json').write_text('{"background": "#000000", "round, big": [255, 0, 0], "ignore": "#ffffff"}')
    for name in ('p.txt', 'p.json'):
        rule = choose_rule(palette=tmp_path / name)
        assert rule.classes == ('background', 'round, big') and rule.colours == {0: 0, 0xff0000: 1, 0xffffff: 255}
    for text, message in (('a,red\nb,#000000', r"p.txt: a: 'red' is not a colour \(#rrggbb"), ('a', 'line 1'),
                          ('a,#000000\nb,#000000', 'the colour #000000 is there twice'),
                          ('a,#000000\na,#ffffff', 'a is named more than once'), ('a,#000000', '1 named')):
        (tmp_path / 'p.txt').write_text(text)
        with pytest.raises(UserError, match=message):
            choose_rule(palette=tmp_path / 'p.txt')
    for options, message in ((dict(classes='a,b,c', threshold=3), 'threshold 3 is for masks of two classes'),
                             (dict(classes='a,b,c', num_classes=4), 'num_classes 4, but 3 classes are named: a, b, c'),
                             (dict(classes='a,b', palette={}), 'give classes or a palette, not both'),
                             (dict(num_classes=1), 'must be from 2 to 255'), (dict(classes='polyp'), '1 named'),
                             (dict(palette='none.txt'), 'cannot read the palette none.txt: No such file')):
        with pytest.raises(UserError, match=message):
            choose_rule(**options)


def test_labels_are_checked_before_a_run(tmp_path):
    label_folders(tmp_path)
    convert(tmp_path, classes=CLASSES, split='train')
    init_default_scope('mmseg')

    def run(model, **options):
        data = dict(type='BaseSegDataset', data_root=str(tmp_path / 'out'), metainfo=dict(classes=CLASSES),
                    data_prefix=dict(img_path='images/train', seg_map_path='masks/train')) | options
        check_config(dict(train_dataloader=dict(dataset=data), model=model, default_scope='mmseg'), ['train'])
    run(dict(decode_head=dict(num_classes=3)))
    for model, options, message in (
            (dict(decode_head=dict(num_classes=2)), {},
             r'^model.decode_head.num_classes is 2, but train_dataloader.dataset has 3 classes \(dark, light, '),
            ({}, dict(metainfo=dict(classes=('a', 'b'))),
             r"metainfo.classes has 2 classes, but the masks of \S+ have 3: write metainfo=dict\(classes=\('dark', "),
            ({}, dict(img_suffix='.png'), r"img_suffix is '.png', but the images in \S+images/train have: .jpg$")):
        with pytest.raises(UserError, match=message):
            run(model, **options)
    (tmp_path / 'out/masks/train/a3.png').unlink()
    with pytest.raises(UserError, match='is damaged: images/train/a3.jpg: no mask masks/train/a3.png'):
        run({})
    (tmp_path / 'out/manifest.json').write_text('{}')  # not ours: mmseg's own business
    run({})
