"""Boxes, masks and areas of one class in another convention than COCO's; good files of every kind pass."""
import json

import numpy as np
import pytest
from pycocotools import mask as pixel_masks

from mmkcla.datasets.detection.coco.faults import Use, find_faults
from mmkcla.datasets.detection.coco.runs import extent, run_lengths
from mmkcla.datasets.detection.coco.table import read_table

WIDTH, HEIGHT = 160, 120


def ellipse(rng):
    """A mask ``(H, W)``, its box and a polygon around it."""
    (a, b), angle = rng.uniform(8, 30, 2), np.linspace(0, 2 * np.pi, 40, endpoint=False)
    x, y = rng.uniform(a, WIDTH - a), rng.uniform(b, HEIGHT - b)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    mask = ((columns - x) / a) ** 2 + ((rows - y) / b) ** 2 < 1
    outline = np.stack([x + a * np.cos(angle), y + b * np.sin(angle)], 1).round(2)
    return mask, outline, [round(value, 2) for value in (x - a, y - b, 2 * a, 2 * b)]


def runs(mask, order='F'):
    changes = np.flatnonzero(np.diff(mask.ravel(order).astype(int), prepend=0))
    return np.diff(np.concatenate([[0], changes, [mask.size]])).tolist()


def encoded(mask):
    found = pixel_masks.encode(np.asfortranarray(mask.astype(np.uint8)))
    return dict(size=[HEIGHT, WIDTH], counts=found['counts'].decode())


def content(kind='polygon', seed=0, classes=2, objects=24):
    """Twelve images; the masks as polygons, run lengths, or run lengths as text."""
    rng, annotations, masks = np.random.default_rng(seed), [], []
    for number in range(objects):
        mask, outline, box = ellipse(rng)
        masks.append(mask)
        segmentation = {'polygon': [outline.ravel().tolist()], 'runs': dict(size=[HEIGHT, WIDTH], counts=runs(mask)),
                        'text': encoded(mask)}.get(kind)
        annotations.append(dict(id=number + 1, image_id=number % 12 + 1, category_id=number % classes + 1, bbox=box,
                                area=int(mask.sum()), iscrowd=0, segmentation=segmentation))
    images = [dict(id=i, file_name=f'{i}.jpg', width=WIDTH, height=HEIGHT) for i in range(1, 13)]
    return dict(images=images, annotations=annotations,
                categories=[dict(id=i + 1, name='abcdefgh'[i]) for i in range(classes)]), masks


def faults(tmp_path, data, **use):
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(data))
    return find_faults(read_table(path), Use(**{'masks': True, **use}))


def kinds(found):
    return [(fault.kind, fault.severity, fault.count) for fault in found]


@pytest.mark.parametrize('kind', ['polygon', 'runs', 'text', 'none'])
@pytest.mark.parametrize('masks', [True, False, None])
@pytest.mark.parametrize('seed', range(3))
def test_good_files(tmp_path, kind, masks, seed):
    data, _ = content(kind, seed)
    if kind == 'none':
        masks = False
        for one in data['annotations']:
            del one['segmentation']
    assert faults(tmp_path, data, masks=masks) == []


def test_good_objects_of_unusual_shape(tmp_path):
    """Parts, thin lines, small objects, rounded boxes, objects that the image cuts, and crowds."""
    data, _ = content()
    diagonal = np.eye(HEIGHT, WIDTH, dtype=bool)
    shapes = [
        ([[10, 10, 20, 10, 20, 20, 10, 20], [50, 50, 60, 50, 60, 60]], [10, 10, 50, 50], 150),
        ([[0, 0, 1, 0, 120, 119, 119, 119]], [0, 0, 120, 119], 119), ([[5, 5, 7, 5, 7, 7, 5, 7]], [5, 5, 2, 2], 4),
        ([[5.4, 5.4, 9.6, 5.4, 9.6, 9.6, 5.4, 9.6]], [5, 5, 5, 5], 17),
        ([[140, 100, 200, 100, 200, 150, 140, 150]], [140, 100, 20, 20], 400),
        ([[10, 10, 40, 10, 40, 40, 10, 40]], [10, 10, 30, 30], 900.5),
        (dict(size=[HEIGHT, WIDTH], counts=runs(diagonal)), [0, 0, 120, 120], 120)]
    for number, (segmentation, box, area) in enumerate(shapes * 4):
        data['annotations'].append(dict(id=100 + number, image_id=number % 12 + 1, category_id=1, iscrowd=0,
                                        segmentation=segmentation, bbox=[value + number // 7 * 0.01 for value in box],
                                        area=area))
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[20:50, 30:90:2] = mask[70:90, 100:140] = True
    data['annotations'] += [dict(id=200 + i, image_id=i + 1, category_id=2, iscrowd=1, bbox=[30, 20, 110, 70],
                                 area=int(mask.sum()), segmentation=form)
                            for i, form in enumerate((dict(size=[HEIGHT, WIDTH], counts=runs(mask)), encoded(mask)))]
    for masks in (True, False, None):
        assert faults(tmp_path, data, masks=masks) == []


def swap(outline):
    return [[value for pair in zip(part[1::2], part[::2], strict=True) for value in pair] for part in outline]


MASKS = {  # how the masks of one class are written, and what is said
    'row-major runs': ('runs', lambda one, mask: dict(size=[HEIGHT, WIDTH], counts=runs(mask, 'C')),
                       'down the columns'),
    'row-major text': ('text', lambda one, mask: encoded(mask.ravel().reshape(WIDTH, HEIGHT).T), 'down the columns'),
    'inverted': ('runs', lambda one, mask: dict(size=[HEIGHT, WIDTH], counts=runs(~mask)), 'start with the background'),
    'inverted text': ('text', lambda one, mask: encoded(~mask), 'start with the background'),
    'empty': ('text', lambda one, mask: encoded(mask & False), 'the masks are empty'),
    'normalised': ('polygon', lambda one, mask: [
        (np.reshape(part, (-1, 2)) / [WIDTH, HEIGHT]).ravel().tolist() for part in one['segmentation']], '(0 to 1)'),
    'swapped': ('polygon', lambda one, mask: swap(one['segmentation']), 'the polygons are [y, x, …]'),
    'shifted': ('polygon', lambda one, mask: [[value + 20 for value in part] for part in one['segmentation']],
                'correct the boxes or the segmentations'),
    'shifted runs': ('runs', lambda one, mask: dict(size=[HEIGHT, WIDTH], counts=runs(np.roll(mask, 25, 1))), ''),
    'half size': ('polygon', lambda one, mask: [[value / 2 for value in part] for part in one['segmentation']], ''),
}


@pytest.mark.parametrize(('kind', 'write', 'cause'), MASKS.values(), ids=MASKS)
def test_masks_of_one_class(tmp_path, kind, write, cause):
    data, masks = content(kind, classes=3, objects=36)
    for one, mask in zip(data['annotations'], masks, strict=True):
        if one['category_id'] == 2:
            one['segmentation'] = write(one, mask)
    for use in (True, None):
        fault = next(iter(faults(tmp_path, data, masks=use)))
        assert (fault.kind, fault.severity) == ("boxes and masks of the class 'b' that do not agree", 'refused')
        assert fault.count >= 10 and cause in fault.remedy
    assert all(fault.severity == 'note' for fault in faults(tmp_path, data, masks=False))  # of boxes alone


BOXES = {
    'swapped': (lambda x, y, w, h: [y, x, h, w], '[y, x, height, width]', True),
    'corners': (lambda x, y, w, h: [x, y, x + w, y + h], 'two corners [x1, y1, x2, y2]', True),
    'centre': (lambda x, y, w, h: [x + w / 2, y + h / 2, w, h], 'centre and size', True),
    'swapped corners': (lambda x, y, w, h: [y, x, y + h, x + w], 'two corners [y1, x1, y2, x2]', True),
    '0 to 1': (lambda x, y, w, h: [x / WIDTH, y / HEIGHT, w / WIDTH, h / HEIGHT], '(0 to 1)', True),
    '0 to 1000': (lambda x, y, w, h: [1000 * x / WIDTH, 1000 * y / HEIGHT, 1000 * w / WIDTH, 1000 * h / HEIGHT],
                  '', True),
    'another size': (lambda x, y, w, h: [2 * x, 2 * y, 2 * w, 2 * h], '', True),
    'shifted': (lambda x, y, w, h: [max(0, x - 15), max(0, y - 15), w, h], 'correct the boxes', False),
}


@pytest.mark.parametrize(('write', 'cause', 'refused'), BOXES.values(), ids=BOXES)
@pytest.mark.parametrize('masks', [True, False, None])
def test_boxes_of_one_class_against_masks(tmp_path, write, cause, refused, masks):
    data, _ = content(classes=3, objects=36)
    for one in data['annotations']:
        if one['category_id'] == 2:
            one['bbox'] = write(*one['bbox'])
    found = [fault for fault in faults(tmp_path, data, masks=masks) if fault.severity == 'refused']
    if refused or masks is not False:
        assert any("class 'b'" in fault.kind for fault in found)
        assert any(cause in fault.kind + fault.remedy for fault in found)
    else:
        said, = faults(tmp_path, data, masks=masks)
        assert (said.kind, said.severity) == ("boxes and masks of the class 'b' that do not agree", 'note')


@pytest.mark.parametrize(('write', 'kind'), [
    (lambda x, y, w, h: [y, x, h, w], '[y, x, height, width]'),
    (lambda x, y, w, h: [x, y, x + w, y + h], 'two corners [x1, y1, x2, y2]'),
    (lambda x, y, w, h: [x + w / 2, y + h / 2, w, h], 'centre and size [x, y, width, height]'),
    (lambda x, y, w, h: [x / WIDTH, y / HEIGHT, w / WIDTH, h / HEIGHT], 'relative to the image (0 to 1)')])
def test_boxes_of_one_class_against_the_image(tmp_path, write, kind):
    data, _ = content('none', classes=2, objects=80)
    for one in data['annotations']:
        del one['segmentation']
        x, y, w, h = one['bbox']
        one['bbox'] = [x, y, w / 2, h] if kind.startswith('two') else one['bbox']
        if one['category_id'] == 2:
            one['bbox'] = write(*one['bbox'])
            one['area'] = max(1, one['area'])
    found = [fault for fault in faults(tmp_path, data, masks=False) if fault.severity == 'refused']
    assert found[0].kind == f"boxes of the class 'b' that are {kind}"


def test_single_objects_are_noted(tmp_path):
    data, _ = content()
    data['annotations'][0]['bbox'] = [100, 80, 9, 9]
    assert ('objects whose box and mask do not agree', 'note', 1) in kinds(faults(tmp_path, data))


@pytest.mark.parametrize('wrong', [
    lambda x, y, w, h: [(x + 70) % (WIDTH - w), y, w, h], lambda x, y, w, h: [x, y, w / 3, h / 2],
    lambda x, y, w, h: [0, 0, WIDTH, HEIGHT], lambda x, y, w, h: [0, 0, 9, 9]],
    ids=['shifted', 'shrunk', 'whole image', 'placeholder'])
def test_a_few_boxes_of_other_places(tmp_path, wrong):
    """Two of a class are noted; three of twelve are refused with masks, and noted for a detector of boxes."""
    data, _ = content()
    ours = [one for one in data['annotations'] if one['category_id'] == 2]
    for one in ours[:2]:
        one['bbox'] = [round(value, 2) for value in wrong(*one['bbox'])]
    for masks in (True, None, False):
        found = [one for one in kinds(faults(tmp_path, data, masks=masks)) if 'mask' in one[0]]
        assert found == ([] if masks is False else [('objects whose box and mask do not agree', 'note', 2)])
    ours[2]['bbox'] = [round(value, 2) for value in wrong(*ours[2]['bbox'])]
    for masks, severity in ((True, 'refused'), (None, 'refused'), (False, 'note')):
        found = [one for one in kinds(faults(tmp_path, data, masks=masks)) if 'mask' in one[0]]
        assert found == [("objects of the class 'b' whose box and mask hardly overlap", severity, 3)]


def test_crowds_are_a_group_of_their_own(tmp_path):
    data, masks = content('runs')
    for number, mask in enumerate(masks[:4]):
        wrong = dict(size=[HEIGHT, WIDTH], counts=runs(mask, 'C'))
        data['annotations'].append({**data['annotations'][number], 'id': 90 + number, 'iscrowd': 1,
                                    'segmentation': wrong})
    assert kinds(faults(tmp_path, data)) == [('boxes and masks, which are crowds, that do not agree', 'note', 4)]


@pytest.mark.parametrize(('factor', 'kind'), [
    (1 / 4, 'areas of less than 33% of the mask'), (1e-4, 'areas of less than 33% of the mask'),
    (9, 'areas of more than 2 times the box')])
@pytest.mark.parametrize(('wrong', 'severity'), [(1, 'note'), (12, 'refused'), (24, 'refused')])
def test_areas(tmp_path, factor, kind, wrong, severity):
    data, _ = content()
    chosen = [one for one in data['annotations'] if wrong != 12 or one['category_id'] == 1][:wrong]
    for one in chosen:
        one['area'] *= factor
    assert kinds(faults(tmp_path, data)) == [(kind, severity, wrong)]


def test_areas_without_masks(tmp_path):
    data, _ = content()
    for one in data['annotations']:
        del one['segmentation']
        one['area'] = 1 if one['category_id'] == 1 else one['area']
    assert kinds(faults(tmp_path, data, masks=False)) == [('areas of less than 1% of the box', 'refused', 12)]


def test_runs_as_pycocotools_reads_them():
    rng = np.random.default_rng(0)
    for number in range(200):
        height, width = map(int, rng.integers(1, 60, 2))
        mask = (rng.random((height, width)) < (0, 0.02, 0.5, 0.98, 1)[number % 5]).astype(np.uint8)
        text = pixel_masks.encode(np.asfortranarray(mask))['counts'].decode()
        found = run_lengths(text, height, width)
        assert found.tolist() == run_lengths(found.tolist(), height, width).tolist()
        again = pixel_masks.frPyObjects(dict(size=[height, width], counts=found.tolist()), height, width)
        assert (pixel_masks.decode(again) == mask).all()
        if not mask.any():
            assert np.isnan(extent(found, height)).all()
            continue
        rows, columns = np.nonzero(mask)
        assert extent(found, height) == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


@pytest.mark.parametrize('counts', [
    '', 'abc', 'ÿ', 'o', 'P' * 50, '\x00', '1 2 3', 5, None, True, {}, [], [1.5, 98.5], [-1, 101], [True, 99], ['100'],
    [None], [[100]], [99], [10**400], [2**70], 'ooooooooooooooo0', '0' * 100])
def test_damaged_counts(tmp_path, counts):
    assert run_lengths(counts, 10, 10) is None
    data, _ = content()
    data['annotations'][0]['segmentation'] = dict(size=[HEIGHT, WIDTH], counts=counts)
    for masks in (True, None):
        found = kinds(faults(tmp_path, data, masks=masks))
        assert found == [('run-length masks whose counts are damaged', 'refused', 1)]
