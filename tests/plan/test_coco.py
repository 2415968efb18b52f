"""COCO files: what is left out, repaired, refused, and how a single file is split."""
import json

import pytest
from PIL import Image
from tiny import write_coco

from mmkcla.datasets.detection.verify import report_file
from mmkcla.errors import UserError
from mmkcla.plan import coco
from mmkcla.plan.detection import load_splits, look_at


@pytest.fixture
def data(tmp_path):
    return write_coco(tmp_path / 'data', images=6)


def change(folder, edit):
    content = json.loads((folder / 'ann.json').read_text())
    edit(content)
    (folder / 'ann.json').write_text(json.dumps(content))
    return folder / 'ann.json', [folder / 'images']


def entry(**more):
    return {'id': 900, 'image_id': 1, 'category_id': 1, 'bbox': [1, 2, 30, 20], 'area': 600, 'iscrowd': 0, **more}


def lines(problems):
    return [str(problem) for problem in problems]


def test_good_labels_stay_as_they_are(data):
    content = json.loads((data / 'ann.json').read_text())
    loaded = coco.load(data / 'ann.json', [data])  # finds data/images
    assert loaded.folder == data / 'images' and loaded.content == content and not loaded.problems


@pytest.mark.parametrize('more, kept, said', [
    (dict(image_id=77), None, 'annotations of unknown images (left out): 1 (id 900)'),
    (dict(category_id=9), None, 'annotations of unknown categories (left out): 1 (id 900 in 001.jpg)'),
    (dict(bbox=[200, 5, 10, 10]), None, 'boxes of less than a pixel in the image (left out): 1 (id 900 in 001.jpg)'),
    (dict(bbox=[5, 5, 0, 10]), None, 'boxes of less than a pixel in the image (left out): 1 (id 900 in 001.jpg)'),
    (dict(bbox=[-10, 80, 30, 40]), [0, 80, 20, 16],
     'boxes reaching beyond the image (cut to it): 1 (id 900 in 001.jpg)'),
    (dict(bbox=[-0.5, 3, 20, 20]), [-0.5, 3, 20, 20], None),  # rounding is not a mistake
    (dict(iscrowd=1), [1, 2, 30, 20], 'crowd regions (ignored in training and evaluation): 1 (id 900 in 001.jpg)')])
def test_each_fault_is_mended_and_counted(data, more, kept, said):
    path, folders = change(data, lambda content: content['annotations'].append(entry(**more)))
    loaded = coco.load(path, folders)
    found = [annotation['bbox'] for annotation in loaded.content['annotations'] if annotation['id'] == 900]
    assert found == ([] if kept is None else [kept])
    assert lines(loaded.problems) == ([said] if said else [])


def test_ids_below_one_are_renumbered(data):
    def from_zero(content):
        for annotation in content['annotations']:
            annotation['id'] -= 1
    path, folders = change(data, from_zero)
    loaded = coco.load(path, folders)
    ids = [annotation['id'] for annotation in loaded.content['annotations']]
    assert ids == list(range(1, len(ids) + 1))
    assert lines(loaded.problems) == ['annotation ids below 1 (all are renumbered): 1 (id 0)']


def test_the_same_box_twice_is_said(data):
    path, folders = change(data, lambda content: content['annotations'].extend([entry(), entry(id=901)]))
    assert lines(coco.load(path, folders).problems) == [
        'objects labelled twice with the same box (kept): 1 (id 901 in 001.jpg)']


def test_what_cannot_be_right_is_refused(data):
    def stretch(content):
        content['images'][2]['width'] = 200
    with pytest.raises(UserError, match=r'another size than ann.json says.*003.jpg \(200×96 there, 96×96 upright\)'):
        coco.load(*change(data, stretch))
    write_again = json.loads((data / 'ann.json').read_text())
    write_again['images'][2]['width'] = 96
    (data / 'ann.json').write_text(json.dumps(write_again))
    with pytest.raises(UserError, match='category ids that are used more than once: 1 .1: "blue", "red".'):
        coco.load(*change(data, lambda content: content['categories'].append({'id': 1, 'name': 'red'})))


def test_missing_images_are_counted(data):
    (data / 'images' / '004.jpg').unlink()
    with pytest.raises(UserError, match=r'images of .*ann.json that are not in .*images: 1 \(004.jpg\)'):
        coco.load(data / 'ann.json', [data])
    with pytest.raises(UserError, match='no folder'):
        coco.load(data / 'ann.json', [data / 'nowhere'])


def test_a_single_file_is_split_by_content(data):
    parts = load_splits([data], [data / 'ann.json'])
    assert [len(part.files) for part in parts.values()] == [5, 1]
    names = {split: [image['file_name'] for image in part.content['images']] for split, part in parts.items()}
    for folder in (data / 'images').iterdir():  # other names, same content: same split
        folder.rename(folder.with_name('x' + folder.name))
    path, _ = change(data, lambda content: [image.update(file_name='x' + image['file_name'])
                                            for image in content['images']])
    again = load_splits([data], [path])
    assert {split: [image['file_name'][1:] for image in part.content['images']]
            for split, part in again.items()} == names
    for part in parts.values():
        ids = {image['id'] for image in part.content['images']}
        assert part.content['annotations'] and {a['image_id'] for a in part.content['annotations']} <= ids


def test_splits_must_have_the_same_classes_and_other_images(tmp_path, data):
    other = write_coco(tmp_path / 'other', images=3, seed=1)
    fingerprint = look_at(load_splits([data, other], [data / 'ann.json', other / 'ann.json']))
    assert fingerprint.splits == {'train': 6, 'val': 3} and not fingerprint.problems[0].fatal
    same = look_at(load_splits([data, data], [data / 'ann.json', data / 'ann.json']))
    assert [problem.what for problem in same.problems if problem.fatal] == [
        'images that are in train, too (all of them, so that val measures nothing); if they have folders of their own, '
        'give --images one for each annotation file']
    path, _ = change(other, lambda content: content['categories'].reverse())
    with pytest.raises(UserError, match='has the classes green, blue, .* has blue, green; they must be the same'):
        load_splits([data, other], [data / 'ann.json', path])
    with pytest.raises(UserError, match='--images has 2 folders for 1 annotation files'):
        load_splits([data, other], [path])


def test_boxes_written_as_polygons_are_no_masks(data):
    def as_boxes(content):
        for one in content['annotations']:
            x, y, width, height = one['bbox']
            one['segmentation'] = [[x, y, x + width, y + height]]
    path, _ = change(data, as_boxes)
    found = look_at(load_splits([data], [path]))
    assert found.masks == 0
    assert any('polygons have fewer than 3 points, so that only boxes are learnt' in line
               for line in lines(found.problems))


def test_the_folder_of_the_same_name_is_chosen(tmp_path):
    root = tmp_path / 'data'
    for number, (split, folder) in enumerate({'train': 'train2017', 'val': 'val2017'}.items()):
        write_coco(tmp_path / split, images=3, seed=number)
        root.mkdir(exist_ok=True)
        (tmp_path / split / 'images').rename(root / folder)
        (tmp_path / split / 'ann.json').rename(root / f'instances_{split}2017.json')
    found = look_at(load_splits([root], [root / 'instances_train2017.json', root / 'instances_val2017.json']))
    assert not [problem for problem in found.problems if 'in train, too' in problem.what]
    for name in ('instances_val2017', 'val', 'validation_labels'):
        path = (root / 'instances_val2017.json')
        path = path.rename(root / f'{name}.json')
        assert coco.load(path, [root]).folder == root / 'val2017'
        report = report_file(path)
        assert report.counts['image folder'] == str(root / 'val2017') and not report.faults
        path.rename(root / 'instances_val2017.json')
    path = (root / 'instances_val2017.json').rename(root / 'labels.json')
    with pytest.raises(UserError, match='several folders have the images of .*labels.json, with different content: '
                                        '.*train2017, .*val2017; give --images one folder for each annotation file'):
        coco.load(path, [root])
    assert [(fault.severity, fault.count) for fault in report_file(path).faults if 'folders that have' in fault.kind
            ] == [('note', 2)]
    assert coco.load(path, [root / 'val2017']).folder == root / 'val2017'


def test_statistics(tmp_path):
    (tmp_path / 'images').mkdir()
    for number in (1, 2):
        Image.new('RGB', (100, 50), (number, 0, 0)).save(tmp_path / 'images' / f'{number}.png')
    content = {'images': [{'id': n, 'file_name': f'{n}.png', 'width': 100, 'height': 50} for n in (1, 2)],
               'categories': [{'id': 5, 'name': 'a'}, {'id': 2, 'name': 'b'}],
               'annotations': [entry(id=1, category_id=2, bbox=[0, 0, 40, 10]),
                               entry(id=2, category_id=2, bbox=[0, 20, 10, 10], segmentation=[[0, 20, 9, 20, 9, 29]]),
                               entry(id=3, image_id=2, category_id=2, bbox=[0, 0, 20, 20])]}
    (tmp_path / 'ann.json').write_text(json.dumps(content))
    parts = load_splits([tmp_path], [tmp_path / 'ann.json'])
    found = look_at(parts)
    assert found.classes == ['a', 'b']  # in the file's order, not that of the ids
    assert found.object_side == {'0': 10, '5': 11, '10': 12, '50': 20, '95': 20, '100': 20}
    assert found.relative_side['50'] == 0.2 and found.aspect_ratio['0'] == 0.25
    assert (found.masks, found.with_masks, found.per_image['100']) == (1, False, 2)
    assert sum(counts['b'] for counts in found.objects.values()) == 3
    assert 'train: classes without an object: 1 (a)' in lines(found.problems)
    assert any(line.startswith('objects without a mask among others that have one') for line in lines(found.problems))
