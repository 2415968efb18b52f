"""Oddities of JSON, each refused in one line, and the pictures of every kind of segmentation."""
import json

import pytest
from msgspec import Raw
from tiny import write_coco

from mmkcla.cli import main
from mmkcla.datasets.detection.coco.faults import Use, find_faults
from mmkcla.datasets.detection.coco.keys import KEYS
from mmkcla.datasets.detection.coco.masks import outlines
from mmkcla.datasets.detection.coco.report import samples
from mmkcla.datasets.detection.coco.table import read_table
from mmkcla.datasets.sheet import CROWD, UNKNOWN
from mmkcla.errors import UserError


@pytest.fixture
def root(tmp_path):
    return write_coco(tmp_path / 'data', images=6)


def test_the_keys_of_a_good_file_are_not_counted_wrong(root):
    """Licenses, info and objects of one's own have keys of the same names."""
    path = root / 'ann.json'
    content = json.loads(path.read_text())
    content.update(info=dict(id=1, name='x'), licenses=[dict(id=1, name='a', url='')], type='images')
    content['annotations'][0].update(attributes=dict(id=3, bbox=[1]), ignore=0)
    content['images'][0]['file_name'] = '001.jpg'
    path.write_text(json.dumps(content))
    assert find_faults(read_table(path), Use(masks=True)) == []


@pytest.mark.parametrize('extra', ['', ', "score": NaN'])
@pytest.mark.parametrize(('part', 'key'), [(part, key) for part, keys in KEYS.items() for key in keys])
def test_keys_that_are_repeated(root, part, key, extra):
    path = root / 'ann.json'
    content = json.loads(path.read_text())
    first = {'ignore': 0, **content[part][0]} if part == 'annotations' else content[part][0]
    content[part][0] = 'HERE'
    twice = json.dumps(first)[:-1] + f', {json.dumps(key)}: {json.dumps(first[key])}{extra}}}'
    path.write_text(json.dumps(content).replace('"HERE"', twice))
    with pytest.raises(UserError, match=f"has the key '{key}' twice, and only the last value would be read"):
        read_table(path)


@pytest.mark.parametrize('part', KEYS)
def test_lists_that_are_repeated(root, part):
    path = root / 'ann.json'
    path.write_text(path.read_text()[:-1] + f', "{part}": []}}')
    with pytest.raises(UserError, match=f"has the key '{part}' twice"):
        read_table(path)


DEEP = '[' * 100000 + ']' * 100000


@pytest.mark.parametrize('value', ['NaN', 'Infinity', '-Infinity', '1e400', '-1e400', '9' * 5000, DEEP,
                                   '[' * 50 + ']' * 50, '{}', '[]', '"5"', 'null', 'true', '{"a": [NaN]}'])
@pytest.mark.parametrize(('part', 'key'), [
    ('images', 'width'), ('images', 'id'), ('annotations', 'bbox'), ('annotations', 'area'),
    ('annotations', 'image_id'),
    ('categories', 'name'), ('annotations', 'segmentation'), ('annotations', 'id')])
def test_odd_values(root, part, key, value, capsys):
    path = root / 'ann.json'
    content = json.loads(path.read_text())
    content[part][0][key] = 'HERE'
    path.write_text(json.dumps(content).replace('"HERE"', value))
    code = main(['data', 'verify', str(path)])
    out, err = capsys.readouterr()
    absent = key == 'segmentation' and value in ('null', '[]', '{}', '[' * 50 + ']' * 50, DEEP)
    text_id = value == '"5"' and key in ('id', 'name', 'image_id')
    assert code in ((0, 1, 2) if absent or text_id else (1, 2))
    assert code != 2 or err.count('\n') == 1 and err.startswith('error: ')
    assert code != 1 or 'refused: ' in out


@pytest.mark.parametrize('text', ['[]', '1', 'null', '"x"', '{}', '{"images": {}, "categories": [], "annotations": []}',
                                  '{"images": [1], "categories": [], "annotations": []}', DEEP, '{"images": NaN}',
                                  '{"images": [[]], "categories": [], "annotations": []}', '{', '9' * 5000, '',
                                  '{"images": [], "categories": [], "annotations": null}', '\x00'])
def test_odd_containers(root, text, capsys):
    (root / 'ann.json').write_text(text)
    assert main(['data', 'verify', str(root / 'ann.json')]) == 2
    assert capsys.readouterr().err.count('\n') == 1


def test_pictures_of_run_lengths_and_unknown_categories(root):
    path = root / 'ann.json'
    content = json.loads(path.read_text())
    runs = dict(size=[96, 96], counts=[96 * 10 + 20] + [30, 66] * 9 + [30, 96 * 96 - 96 * 10 - 20 - 96 * 9 - 30])
    content['annotations'] = [dict(id=1, image_id=1, category_id=1, bbox=[10, 20, 10, 30], area=300, iscrowd=0,
                                   segmentation=runs),
                              dict(id=2, image_id=1, category_id=9, bbox=[5, 5, 9, 9], area=81, iscrowd=0),
                              dict(id=3, image_id=1, category_id=2, bbox=[7, 5, 9, 9], area=81, iscrowd=1)]
    path.write_text(json.dumps(content))
    sample, = samples(path, read_table(path), root / 'images', [])
    (points, label), = sample.polygons
    assert label == 0 and (min(points[::2]), max(points[::2]), min(points[1::2]), max(points[1::2])) == (10, 19, 20, 49)
    assert [box[4] for box in sample.boxes] == [0, UNKNOWN, CROWD]
    assert main(['data', 'verify', str(path), '--html', str(root / 'page.html')]) == 0
    assert outlines(Raw(b'{"size": [5, 5], "counts": "garbage"}')) == outlines(Raw(b'[NaN]')) == []
