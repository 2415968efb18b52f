"""Every kind of fault of a COCO file: what is refused, dropped, repaired or noted, and good files that pass."""
import json
import math

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image
from tiny import CLASSES, write_coco

from mmkcla.cli import main
from mmkcla.datasets.check import check_config
from mmkcla.datasets.detection.coco.cache import cached_table, pack, unpack
from mmkcla.datasets.detection.coco.faults import Use, find_faults, images_of
from mmkcla.datasets.detection.coco.headers import header_faults
from mmkcla.datasets.detection.coco.masks import ABSENT
from mmkcla.datasets.detection.coco.report import absent_images, counts
from mmkcla.datasets.detection.coco.table import read_table
from mmkcla.datasets.detection.verify import report_file
from mmkcla.errors import UserError

SIDE = 96


@pytest.fixture
def root(tmp_path):
    return write_coco(tmp_path / 'data', images=6)


def edited(root, edit):
    content = json.loads((root / 'ann.json').read_text())
    edit(content)
    (root / 'ann.json').write_text(json.dumps(content))
    return read_table(root / 'ann.json')


def every(key, value):
    """Set a key of all annotations; ``value`` may be a function of the annotation."""
    def edit(content):
        for one in content['annotations']:
            one[key] = value(one) if callable(value) else value
    return edit


def first(part, **values):
    return lambda content: content[part][0].update(values)


def without(part, key):
    return lambda content: content[part][0].pop(key)


def severities(table, **use):
    return {fault.kind: (fault.severity, fault.count) for fault in find_faults(table, Use(**use))}


def kind_of(found, words):
    return next((value for kind, value in found.items() if words in kind), None)


def test_good_files_have_no_fault(root):
    table = read_table(root / 'ann.json')
    assert find_faults(table, Use(CLASSES, masks=True, filters=dict(filter_empty_gt=True, min_size=32))) == []
    assert header_faults(table, root / 'images') == []

    def as_coco(content):  # a crowd as run lengths, an image without objects, fractions, an unused category
        content['annotations'].append(dict(
            id=99, image_id=1, category_id=1, bbox=[0, 0, SIDE, SIDE], area=90.5, iscrowd=1,
            segmentation=dict(counts=[0, SIDE * SIDE], size=[SIDE, SIDE])))
        content['annotations'] = [one for one in content['annotations'] if one['image_id'] != 2]
        content['categories'].append(dict(id=7, name='red'))
        content['annotations'][0]['bbox'] = [float(value) for value in content['annotations'][0]['bbox']]
    assert find_faults(edited(root, as_coco), Use(CLASSES, masks=True)) == []


@pytest.mark.parametrize('value', [None, '5', math.nan, math.inf, [], {}, True])
@pytest.mark.parametrize(('part', 'key'), [
    ('images', 'width'), ('images', 'height'), ('annotations', 'area'), ('annotations', 'bbox'),
    ('annotations', 'iscrowd'), ('images', 'file_name'), ('categories', 'name'), ('images', 'id'),
    ('annotations', 'image_id'), ('annotations', 'category_id'), ('annotations', 'id'), ('categories', 'id')])
def test_wrong_types_are_refused(root, part, key, value):
    good = (isinstance(value, str) and key in ('file_name', 'name', 'id', 'category_id')
            or key == 'iscrowd' and value is True)
    found = severities(edited(root, first(part, **{key: value})))
    assert (kind_of(found, key) == ('refused', 1)) != good


@pytest.mark.parametrize(('part', 'key'), [
    ('images', 'id'), ('images', 'file_name'), ('images', 'width'), ('images', 'height'), ('annotations', 'id'),
    ('annotations', 'image_id'), ('annotations', 'category_id'), ('annotations', 'bbox'), ('annotations', 'area'),
    ('categories', 'id'), ('categories', 'name')])
def test_missing_keys_are_refused(root, part, key):
    table = edited(root, without(part, key))
    fault = next(one for one in table.faults if key in one.kind)
    assert (fault.severity, fault.count) == ('refused', 1) and fault.places[0].endswith(': missing')


@pytest.mark.parametrize(('edit', 'words', 'expected'), [
    (every('iscrowd', 1), 'objects with iscrowd 1', 'refused'),
    (every('iscrowd', lambda one: int(one['category_id'] == 1)), "class 'blue', all with iscrowd 1", 'refused'),
    (every('category_id', lambda one: one['category_id'] - 1), 'unknown categories', 'refused'),
    (every('area', 0), "class 'blue', which are all left out", 'refused'),
    (every('area', lambda one: 0 if one['category_id'] == 2 else 9), "class 'green', which are all left", 'refused'),
    (first('annotations', area=0), 'an area of 0 or less', 'dropped'),
    (every('area', lambda one: 90 * one['area']), 'areas of more than 2 times the box', 'refused'),
    (first('annotations', area=90000), 'areas of more than 2 times the box', 'note'),
    (every('image_id', lambda one: str(one['image_id'])), 'image_id is of another type', 'refused'),
    (every('category_id', lambda one: str(one['category_id'])), 'category_id is of another type', 'refused'),
    (every('category_id', ''), 'unknown categories', 'refused'),
    (every('image_id', 700), 'unknown images', 'refused'),
    (first('annotations', image_id=700), 'unknown images', 'dropped'),
    (first('annotations', category_id=70), 'unknown categories', 'dropped'),
    (every('bbox', lambda one: [one['bbox'][0], one['bbox'][1], one['bbox'][0] + one['bbox'][2],
                                one['bbox'][1] + one['bbox'][3]]), 'two corners', 'refused'),
    (every('bbox', lambda one: [value / SIDE for value in one['bbox']]), 'relative to the image', 'refused'),
    (first('annotations', bbox=[200, 200, 20, 20]), 'boxes outside their image', 'dropped'),
    (first('annotations', bbox=[-50, 5, 20, 20]), 'boxes outside their image', 'dropped'),
    (first('annotations', bbox=[5, 5, 0, 20]), 'boxes of less than a pixel', 'dropped'),
    (first('annotations', bbox=[5, 5, -10, 20]), 'boxes of less than a pixel', 'dropped'),
    (lambda content: content['annotations'].append({**content['annotations'][0], 'id': 99}),
     'objects with the image, class and box of an earlier one', 'note'),
    (lambda content: content['annotations'].clear(), 'images, none of which has an object', 'refused'),
    (lambda content: content['images'].clear(), "entries of 'images'", 'refused'),
    (first('annotations', ignore=1), "with 'ignore' set", 'dropped'),
    (first('annotations', id=0), 'with the id 0', 'repaired'),
    (first('annotations', id=-3), 'with a negative id', 'repaired'),
    (first('annotations', id=2**63), 'with an id above 9007199254740991', 'repaired'),
    (first('annotations', id=1.5), 'with a fractional id', 'repaired'),
    (first('annotations', id='a'), 'text as id', 'repaired'),
    (first('annotations', id=2), 'annotation ids that are used more than once', 'refused'),
    (first('images', id=2), 'image ids that are used more than once', 'refused'),
    (first('categories', id=2), 'category ids that are used more than once', 'refused'),
    (first('images', file_name='002.jpg'), 'file names that occur more than once', 'note'),
    (first('categories', name='green'), "categories with the name 'green'", 'refused'),
    (lambda content: content['categories'].append(dict(id=9, name='green')), "with the name 'green'", 'note'),
    (lambda content: content['categories'].insert(0, dict(id=9, name='green')), "with the name 'green'", 'refused'),
])
def test_each_kind(root, edit, words, expected):
    found = severities(edited(root, edit))
    assert kind_of(found, words) is not None and kind_of(found, words)[0] == expected, found


def test_ids_are_refused_with_the_metric_of_mmdet(root):
    table = edited(root, first('annotations', id=0))
    assert kind_of(severities(table, renumbered=False), 'with the id 0') == ('refused', 1)
    assert severities(table, renumbered=None) == {}  # not evaluated
    assert severities(edited(root, first('annotations', id=-1)), renumbered=False) == {}  # right with pycocotools


def test_an_unused_category_is_named(root):
    table = edited(root, lambda content: content['categories'].insert(0, dict(id=9, name='green')))
    fault = find_faults(table, Use(CLASSES))[0]
    assert 'id 9: 0 objects' in fault.places and 'delete the unused category 9' in fault.remedy


@pytest.mark.parametrize(('segmentation', 'words', 'expected'), [
    (None, 'objects without a segmentation', 'refused'), ([], 'objects without a segmentation', 'refused'),
    ([1, 2, 3, 4, 5, 6], 'one flat list', 'refused'), ('mask', 'neither polygons nor', 'refused'),
    (dict(size=[5, 5], counts=[25]), 'another size than their image', 'refused'),
    (dict(size=[SIDE, SIDE], counts=[7]), 'counts are damaged', 'refused'),
    (dict(size=[SIDE, SIDE]), 'neither polygons nor', 'refused'),
    ([[1, 2, 3, 4]], 'all have fewer than 3 points', 'dropped'),
    ([[1, 2, 3, 4], [1, 2, 9, 2, 9, 9]], 'a polygon of fewer than 3 points', 'note'),
    ([[1, 2, 3, 4, 5, 6, 7]], 'all have fewer than 3 points', 'dropped')])
def test_segmentations(root, segmentation, words, expected):
    table = edited(root, first('annotations', segmentation=segmentation))
    assert kind_of(severities(table, masks=True), words) == (expected, 1)
    assert severities(table) == {}  # a detector of boxes does not read them


def test_nan_in_a_polygon(root):
    table = edited(root, first('annotations', segmentation=[[1, 2, math.nan, 4, 5, 6]]))
    assert kind_of(severities(table), 'segmentations with a value') == ('refused', 1)


def test_filters(root):
    table = edited(root, lambda content: content['annotations'].clear() or content['annotations'].append(
        dict(id=1, image_id=1, category_id=1, bbox=[1, 1, 9, 9], area=81, iscrowd=0)))
    found = severities(table, filters=dict(filter_empty_gt=True))
    assert found['images without an object'] == ('dropped', 5)
    assert kind_of(severities(table, filters=dict(min_size=200)), 'all of which filter_cfg') == ('refused', 6)


def test_the_host_keeps_what_is_counted(root):
    from mmdet.datasets import CocoDataset
    table = edited(root, lambda content: [
        content['annotations'][i].update(values) for i, values in enumerate(
            [dict(area=0), dict(bbox=[5, 5, .5, 9]), dict(ignore=1), dict(category_id=44),
             dict(bbox=[-40, 0, 30, 9])])])
    data = CocoDataset(ann_file=str(root / 'ann.json'), metainfo=dict(classes=CLASSES), data_prefix=dict(img=''))
    kept = sum(len(data.get_data_info(i)['instances']) for i in range(len(data)))
    assert counts(table, Use(CLASSES))['objects read by mmdet'] == kept == len(table.ids) - 5


def test_headers(root):
    Image.fromarray(np.zeros((50, 80, 3), np.uint8)).save(root / 'images' / '001.jpg')
    turned = Image.fromarray(np.zeros((SIDE, 60, 3), np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(root / 'images' / '002.jpg', exif=exif)
    (root / 'images' / '003.jpg').write_bytes(b'no image')
    table = edited(root, lambda content: content['images'][1].update(width=60, height=SIDE))
    found = {fault.kind: fault for fault in header_faults(table, root / 'images')}
    assert found['images with another width or height than their file'].places == ['001.jpg: 96×96, the file has 80×50']
    side = found['images that EXIF turns on its side on loading, unlike width and height']
    assert side.places == ['002.jpg: 60×96, loaded as 96×60'] and 'color_ignore_orientation' in side.remedy
    assert found['images that cannot be opened'].places == ['003.jpg: not an image, or of an unknown format']
    assert not any('EXIF' in fault.kind for fault in header_faults(table, root / 'images', upright=False))


def test_missing_values_leave_no_text_of_the_program(root):
    def edit(content):
        del content['annotations'][0]['id'], content['images'][1]['width']
        content['annotations'][1].update(id=None, area=0)
        content['images'][2]['height'] = None

    edited(root, edit)
    found = [str(fault) for fault in report_file(root / 'ann.json').faults]
    assert not any(word in line for line in found for word in ('UNSET', 'nan', 'None'))
    assert ('annotations with a value of id that is not a number or text: 2 (annotation 1 of the list in 001.jpg: '
            'missing, annotation 2 of the list in 001.jpg: null)') in found
    assert not any('another width or height' in line for line in found)  # that the size is missing is said once
    table = cached_table(root / 'ann.json', large=0)
    again = cached_table(root / 'ann.json', large=0)
    assert again.place(0) == table.place(0) == 'annotation 1 of the list in 001.jpg'


@pytest.mark.parametrize('orientation', range(1, 9))
def test_orientation_of_a_square_image(root, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.zeros((SIDE, SIDE, 3), np.uint8)).save(root / 'images' / '002.jpg', exif=exif)
    found = [(fault.kind, fault.severity, fault.places) for fault in header_faults(cached_table(root / 'ann.json'),
                                                                                   root / 'images')]
    assert found == [('images that EXIF turns or mirrors without a change of width and height', 'note',
                      ['002.jpg'])] * (orientation != 1)


@pytest.mark.parametrize(('name', 'cause'), [
    ('a\\001.jpg', 'backslashes'), ('/x/001.jpg', 'absolute path'), ('001.JPG', 'upper and lower case'),
    ('001.png', 'another suffix'), ('a/001.jpg', 'a part too many')])
def test_images_that_are_not_there(root, name, cause):
    fault, = absent_images([name, '002.jpg'], root / 'images')
    assert fault.count == 1 and cause in fault.remedy


def test_the_cache_follows_the_content(root, monkeypatch):
    path = root / 'ann.json'
    table = cached_table(path, large=0)
    assert len(list((root / '.mmkcla_cache').iterdir())) == 2
    again = unpack(pack(table))
    assert again.ids == table.ids and np.array_equal(again.box, table.box) and again.faults == table.faults
    monkeypatch.setattr('mmkcla.datasets.detection.coco.cache.read_table', lambda path: pytest.fail('read again'))
    assert cached_table(path, large=0).names == table.names
    monkeypatch.undo()
    assert edited(root, first('images', width=50)).sizes[0, 0] == 50
    assert cached_table(path, large=0).sizes[0, 0] == 50
    for entry in (root / '.mmkcla_cache').glob('*.table'):
        entry.write_bytes(b'damaged')
    assert cached_table(path, large=0).sizes[0, 0] == 50


def test_a_folder_that_cannot_be_written(root, tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'home'))
    (root / '.mmkcla_cache').write_text('in the way')
    cached_table(root / 'ann.json', large=0)
    assert list((tmp_path / 'home').rglob('*.table'))


def test_both_parsers_agree(root):
    fast = read_table(root / 'ann.json')
    slow = edited(root, lambda content: content.update(info=math.nan))
    assert np.array_equal(fast.box, slow.box)
    assert np.array_equal(fast.segmentation, slow.segmentation) and not (fast.segmentation == ABSENT).any()


@pytest.mark.parametrize(('dataset', 'message'), [
    (dict(metainfo=dict(CLASSES=CLASSES)), 'metainfo has the key CLASSES, which the hosts ignore; write classes='),
    (dict(data_prefix=dict(img_path='images/')), "write data_prefix=dict(img='images/')")])
def test_keys_that_the_host_ignores(root, dataset, message):
    data = dict(type='CocoDataset', data_root=str(root), ann_file='ann.json', data_prefix=dict(img='images/'),
                metainfo=dict(classes=CLASSES))
    from mmkcla.runtime.hosts import import_hosts
    import_hosts(['mmdet'])
    config = dict(default_scope='mmdet', model={}, train_dataloader=dict(dataset={**data, **dataset}))
    with pytest.raises(UserError) as caught:
        check_config(Config(config))
    assert message in str(caught.value)


def test_verify(root, tmp_path, capsys):
    edited(root, first('annotations', bbox=[300, 1, 9, 9]))
    page, record = tmp_path / 'page.html', tmp_path / 'report.json'
    assert main(['data', 'verify', str(root / 'ann.json'), '--html', str(page), '--json', str(record), '--pictures',
                 str(tmp_path / 'pictures')]) == 0
    assert 'dropped: boxes outside their image: 1 (id 1 in 001.jpg: bbox [300, 1, 9, 9])' in capsys.readouterr().out
    report, = json.loads(record.read_text())
    assert report['counts']['images'] == 6 and report['faults'][0]['kind'] == 'boxes outside their image'
    assert 'data:image/png;base64,' in page.read_text() and Image.open(tmp_path / 'pictures' / '0.png').width > 900
    edited(root, every('iscrowd', 1))
    assert main(['data', 'verify', str(root / 'ann.json')]) == 1
    assert 'refused: objects with iscrowd 1' in capsys.readouterr().out


def coco_config(root, pipeline=(), **more):
    from mmkcla.runtime.hosts import import_hosts
    import_hosts(['mmdet'])
    data = dict(type='CocoDataset', data_root=str(root), ann_file='ann.json', data_prefix=dict(img='images/'),
                metainfo=dict(classes=CLASSES), pipeline=list(pipeline), **more)
    return Config(dict(default_scope='mmdet', model={}, train_dataloader=dict(dataset=data)))


def deep(root, bits, suffix='.png'):
    """Replace the first image by one of 16-bit values up to ``2**bits - 1``."""
    pixels = np.linspace(0, 2 ** bits - 1, SIDE * SIDE).astype(np.uint16).reshape(SIDE, SIDE)
    cv2.imwrite(str(root / 'images' / f'001{suffix}'), pixels)
    edited(root, first('images', file_name=f'001{suffix}'))


@pytest.mark.parametrize(('bits', 'loader', 'message'), [
    (12, dict(type='LoadImageFromFile'), '1 image of more than 8 bits, of which LoadImageFromFile drops the low ones'),
    (16, dict(type='mmdet.LoadImageFromFile'), '1 image of more than 8 bits, of which mmdet.LoadImageFromFile drops'),
    (12, dict(type='mmkcla.LoadImageFromFile'), '1 image of 16 bits with values up to 4095 only'),
    (12, dict(type='mmkcla.LoadImageFromFile', bits=12), None), (16, dict(type='mmkcla.LoadImageFromFile'), None),
    (12, dict(type='LoadImageFromFile', color_type='unchanged'), None)])
@pytest.mark.parametrize('suffix', ['.png', '.tif'])
def test_deep_images(root, bits, loader, message, suffix):
    deep(root, bits, suffix)
    if message is None:
        check_config(coco_config(root, [loader]))
        return
    with pytest.raises(UserError) as caught:
        check_config(coco_config(root, [loader]))
    assert message in str(caught.value) and f'001{suffix}' in str(caught.value)


def test_deep_images_without_a_config(root):
    deep(root, 12)
    found = [fault for fault in report_file(root / 'ann.json').faults if 'values up to 4095' in fault.kind]
    assert [(fault.severity, fault.count, fault.places) for fault in found] == [
        ('refused', 1, [str(root / 'images' / '001.png')])]


@pytest.mark.parametrize('suffix', ['jpg', 'png'])
def test_images_of_which_a_resize_leaves_nothing(root, suffix):
    Image.new('RGB', (9000, 1)).save(root / 'images' / f'001.{suffix}')
    edited(root, lambda content: (
        content['images'][0].update(file_name=f'001.{suffix}', width=9000, height=1),
        content.update(annotations=[one for one in content['annotations'] if one['image_id'] != 1])))
    load = dict(type='LoadImageFromFile')
    check_config(coco_config(root, [load, dict(type='Resize', scale=(64, 64))]))
    with pytest.raises(UserError, match=r'1 image so narrow that .* leaves nothing of them; .*: .*001.* \(9000×1\)'):
        check_config(coco_config(root, [load, dict(type='Resize', scale=(64, 64), keep_ratio=True)]))


@pytest.mark.parametrize(('indices', 'images'), [
    (None, 5), (0, 0), (2, 2), (-2, 2), ([0, 4], 2), ((1,), 1)])
def test_indices_as_the_host_takes_them(root, indices, images):
    def outside(content):  # image 1 has no object, each other one an additional box that mmdet leaves out
        content['annotations'] = [one for one in content['annotations'] if one['image_id'] != 1]
        content['annotations'] += [dict(content['annotations'][0], id=100 + i, image_id=i, bbox=[300, 1, 9, 9])
                                   for i in range(2, 7)]
    table = edited(root, outside)
    filters = dict(filter_empty_gt=True)
    config = coco_config(root, filter_cfg=filters, indices=indices)
    from mmdet.registry import DATASETS
    host = DATASETS.build({**config.train_dataloader.dataset, 'serialize_data': False})
    use = Use(CLASSES, filters=filters, indices=indices)
    assert [table.image_ids[i] for i in np.flatnonzero(images_of(table, use))] == [
        host.get_data_info(i)['img_id'] for i in range(len(host))]
    assert kind_of(severities(table, classes=CLASSES, filters=filters, indices=indices), 'outside') == (
        ('dropped', images) if images else None)
    found = counts(table, use)
    assert found['objects read by mmdet'] == sum(len(host.get_data_info(i)['instances']) for i in range(len(host)))
    assert found.get('images chosen by indices', 5) == images


def test_images_outside_the_indices_may_be_absent(root):
    (root / 'images' / '006.jpg').unlink()
    check_config(coco_config(root, indices=5))
    with pytest.raises(UserError, match='images that are not in'):
        check_config(coco_config(root))


@pytest.mark.parametrize('values', [dict(area=0), dict(bbox=[0.1, 0.2, 0.3, 0.4]), dict(bbox=[300, 300, 9, 9])])
@pytest.mark.parametrize(('kept', 'expected'), [(0, 'all'), (1, 'nearly all'), (8, None)])
def test_a_class_of_which_most_is_left_out(root, values, kept, expected):
    def edit(content):
        green = [{**content['annotations'][0], 'id': 100 + i, 'image_id': i % 6 + 1, 'category_id': 2,
                  'bbox': [i, 10, 30, 30], 'area': 900, 'segmentation': None} for i in range(10)]
        for one in green[kept:]:
            one.update(values)
        content['annotations'] = [one for one in content['annotations'] if one['category_id'] == 1] + green
    found = find_faults(edited(root, edit), Use())
    refused = [fault for fault in found if fault.kind.startswith("objects of the class 'green', which are")]
    assert [(fault.kind, fault.severity, fault.count) for fault in refused] == (
        [(f"objects of the class 'green', which are {expected} left out by mmdet", 'refused', 10 - kept)]
        if expected else [])
