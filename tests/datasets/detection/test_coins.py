"""The coins dataset: segmentation, separation of the parts, COCO files, and writing whole or not at all."""
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from coins_data import small_coins
from PIL import Image

pytest.importorskip('skimage')

from mmkcla.datasets.detection import coins
from mmkcla.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob('*') if path.is_file()}


def read(folder: Path, split: str) -> dict:
    return json.loads((folder / 'annotations' / f'instances_{split}2017.json').read_text())


@pytest.fixture(scope='module')
def labels():
    return coins.segment_coins(coins.photograph())


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp('coins') / 'coins'
    assert coins.convert(folder) == f'{folder}: 64 train images with 277 coins, 16 val images with 62 coins'
    return folder


def test_24_coins_each_one_full_disc(labels):
    from skimage.measure import regionprops
    regions = regionprops(labels)
    assert [region.label for region in regions] == list(range(1, 25))
    for region in regions:
        assert 1000 < region.area < 3300
        assert region.solidity > 0.96 and region.euler_number == 1  # convex but for the pixels' steps; one piece
        height, width = np.subtract(region.bbox[2:], region.bbox[:2])
        assert region.area / (height * width) == pytest.approx(np.pi / 4, abs=0.06)
        assert 0.8 < height / width < 1.25


def test_segmentation_stands_noise_and_shading():
    photo = coins.photograph()
    expected = coins.segment_coins(photo) > 0
    shaded = photo + np.linspace(0, 40, photo.shape[1]) + np.random.default_rng(0).normal(0, 3, photo.shape)
    found = coins.segment_coins(shaded.clip(0, 255)) > 0
    assert (found & expected).sum() / (found | expected).sum() > 0.97


def test_segmentation_refuses_another_picture():
    photo = coins.photograph().copy()
    photo[225:, :80] = photo[225:, 85:90].mean(axis=1, keepdims=True)  # background over one coin
    with pytest.raises(UserError, match='found 23 coins in the photograph; expected 24'):
        coins.segment_coins(photo)


@pytest.mark.parametrize('crop', [80, 100, 142])
def test_crops_lie_in_one_part(crop):
    part = coins.train_part()
    for split, wanted in (('train', True), ('val', False)):
        corners = set(map(tuple, coins.crop_corners(split, crop).tolist()))
        assert corners
        windows = np.lib.stride_tricks.sliding_window_view(part == wanted, (crop, crop))
        for y, x in np.random.default_rng(0).integers(0, windows.shape[:2], (300, 2)).tolist():
            assert ((x, y) in corners) == windows[y, x].all()


@pytest.mark.parametrize('split', coins.SPLITS)
def test_every_crop_has_an_instance(labels, split):
    x, y = coins.crop_corners(split, coins.MIN_CROP).T
    instances = 0
    for coin in range(1, 25):
        sums = np.pad(labels == coin, ((1, 0), (1, 0))).cumsum(0).cumsum(1)  # of all pixels above and to the left
        right, low = x + coins.MIN_CROP, y + coins.MIN_CROP
        visible = sums[low, right] - sums[y, right] - sums[low, x] + sums[y, x]
        instances = instances + (visible >= coins.MIN_VISIBLE * sums[-1, -1])
    assert instances.min() >= 1


def test_train_and_val_share_no_pixel_and_no_coin(dataset):
    seen, numbers = {}, {}
    for split in coins.SPLITS:
        content = read(dataset, split)
        seen[split] = np.zeros(coins.SHAPE, bool)
        for image in content['images']:
            x, y = image['photograph_xy']
            seen[split][y:y + image['height'], x:x + image['width']] = True
        numbers[split] = {annotation['coin'] for annotation in content['annotations']}
    assert not (seen['train'] & seen['val']).any()
    assert not numbers['train'] & numbers['val']
    assert (len(numbers['train']), len(numbers['val'])) == (15, 9)


@pytest.mark.parametrize('split, count', [('train', 64), ('val', 16)])
def test_files_are_coco_and_fit_the_masks(dataset, labels, split, count, capsys):
    coco = pytest.importorskip('pycocotools.coco').COCO(str(coins._annotation_file(dataset, split)))
    assert len(coco.imgs) == count == len({tuple(image['photograph_xy']) for image in coco.imgs.values()})
    assert coco.loadCats(coco.getCatIds()) == [{'id': 1, 'name': 'coin', 'supercategory': 'coin'}]
    areas, photo = np.bincount(labels.ravel()), coins.photograph()
    for image in coco.imgs.values():
        (x, y), crop = image['photograph_xy'], image['width']
        picture = np.asarray(Image.open(dataset / f'{split}2017' / image['file_name']))
        assert picture.shape == (image['height'], crop, 3)
        assert (picture == photo[y:y + crop, x:x + crop, None]).all()
        window, covered = labels[y:y + crop, x:x + crop], set()
        for annotation in coco.imgToAnns[image['id']]:
            mask = window == annotation['coin']
            drawn = coco.annToMask(annotation).astype(bool)
            overlap = (mask & drawn).sum() / (mask | drawn).sum()
            assert overlap == 1 if annotation['iscrowd'] else overlap >= 0.98
            assert annotation['area'] == mask.sum()
            assert annotation['iscrowd'] == (annotation['area'] < 0.4 * areas[annotation['coin']])
            rows, columns = np.nonzero(mask)
            left, top, width, height = annotation['bbox']
            assert (left, top) == (columns.min(), rows.min())
            assert (left + width, top + height) == (columns.max() + 1, rows.max() + 1)
            covered.add(annotation['coin'])
        assert covered == set(np.unique(window)) - {0}


def test_perfect_detections_score_one(dataset, capsys):
    COCO = pytest.importorskip('pycocotools.coco').COCO
    from pycocotools.cocoeval import COCOeval
    coco = COCO(str(coins._annotation_file(dataset, 'val')))
    found = coco.loadRes([{'image_id': a['image_id'], 'category_id': 1, 'score': 0.9, 'segmentation': coco.annToRLE(a)}
                          for a in coco.anns.values()])  # the pieces marked iscrowd too: they must cost nothing
    evaluation = COCOeval(coco, found, 'segm')
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)


@pytest.mark.parametrize('mask', [[[1]], [[1, 1]], [[0, 1, 0], [1, 1, 1], [0, 1, 0]], [[1, 0], [0, 1]],
                                  [[0, 0], [0, 1]]])
def test_run_lengths_and_polygons_of_tiny_masks(mask):
    coder = pytest.importorskip('pycocotools.mask')
    mask = np.array(mask, bool)
    assert (coder.decode(coder.frPyObjects(coins.run_lengths(mask), *mask.shape)) == mask).all()
    outlines = coins.polygons(mask)
    assert outlines and all(len(outline) >= 6 and len(outline) % 2 == 0 for outline in outlines)


def test_same_seed_same_bytes(tmp_path):
    first = hashes(small_coins(tmp_path / 'a'))
    assert len(first) == 4 + 2 + 2
    assert hashes(small_coins(tmp_path / 'b')) == first
    coins.convert(tmp_path / 'c', 5, 2, 96)  # more of one split leaves the other's images as they are
    assert {key: value for key, value in first.items() if key.endswith('png')}.items() <= hashes(tmp_path / 'c').items()
    coins.convert(tmp_path / 'd', 4, 2, 96, seed=1)
    assert not set(first.values()) & set(hashes(tmp_path / 'd').values())


def test_left_alone_when_already_there(tmp_path):
    folder = small_coins(tmp_path / 'coins')
    before = {path: path.stat().st_mtime_ns for path in folder.rglob('*')}
    assert coins.convert(folder, 4, 2, 96) == f'{folder}: already there'
    assert {path: path.stat().st_mtime_ns for path in folder.rglob('*')} == before


def test_another_dataset_is_replaced_only_by_overwrite(tmp_path):
    folder = small_coins(tmp_path / 'coins')
    before = hashes(folder)
    with pytest.raises(UserError, match=r'crop 96 \(requested: 100\).*--overwrite'):
        coins.convert(folder, 4, 2, 100)
    assert hashes(folder) == before
    coins.convert(folder, 4, 2, 100, overwrite=True)
    assert read(folder, 'train')['images'][0]['width'] == 100
    assert os.listdir(tmp_path) == ['coins']


def test_damaged_dataset_is_reported_and_mended(tmp_path):
    folder = small_coins(tmp_path / 'coins')
    before = hashes(folder)
    next((folder / 'val2017').iterdir()).unlink()
    with pytest.raises(UserError, match='damaged: .*png is missing'):
        coins.convert(folder, 4, 2, 96)
    coins.convert(folder, 4, 2, 96, overwrite=True)
    assert hashes(folder) == before


def test_foreign_files_survive_overwrite(tmp_path):
    folder = small_coins(tmp_path / 'coins')
    (folder / 'train2017' / 'mine.png').touch()
    with pytest.raises(UserError, match='mine.png is not part of the coins data set and would be lost'):
        coins.convert(folder, 4, 2, 96, overwrite=True)
    for name, text in (('text', 'no JSON'), ('coco', '{"info": {}, "images": []}'), ('list', '[]')):
        annotations = tmp_path / name / 'annotations'
        annotations.mkdir(parents=True)
        (annotations / 'instances_train2017.json').write_text(text)
        with pytest.raises(UserError, match='neither empty nor a coins data set'):
            coins.convert(tmp_path / name, overwrite=True)
        assert (annotations / 'instances_train2017.json').read_text() == text


def test_empty_folder_and_link_are_filled(tmp_path):
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to(tmp_path / 'real')
    small_coins(tmp_path / 'link')
    assert (tmp_path / 'link').is_symlink() and len(hashes(tmp_path / 'real')) == 8


@pytest.mark.parametrize('before', ['nothing', 'a dataset'])
def test_failure_half_way_leaves_what_was_there(tmp_path, monkeypatch, before):
    folder = tmp_path / 'coins'
    if before == 'a dataset':
        small_coins(folder)
    content, saved = hashes(folder), []

    def save(self, path):
        saved.append(path)
        if len(saved) == 3:
            raise OSError(28, 'No space left on device')
        Path(path).touch()

    monkeypatch.setattr(Image.Image, 'save', save)
    with pytest.raises(UserError, match=r'^cannot write \S+: No space left on device$'):
        coins.convert(folder, overwrite=True)
    assert hashes(folder) == content
    assert os.listdir(tmp_path) == (['coins'] if content else [])


@pytest.mark.parametrize('arguments, message', [
    ({'crop': 79}, 'crop 79: must be 80 to 142 pixels'),
    ({'crop': 143}, 'crop 143: must be 80 to 142 pixels'),
    ({'train_images': 0}, '0 train images: must be 1 to 17744'),
    ({'val_images': 163, 'crop': 142}, '163 val images: must be 1 to 162'),
    ({'seed': -1}, 'seed -1: must be 0 or more'),
])
def test_arguments_out_of_range(tmp_path, arguments, message):
    with pytest.raises(UserError, match=message):
        coins.convert(tmp_path / 'coins', **arguments)
    assert not os.listdir(tmp_path)


def test_missing_scikit_image(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'skimage.data', None)
    with pytest.raises(UserError, match=r"^scikit-image is missing: pip install 'mmkcla\[demo\]'$"):
        coins.convert(tmp_path / 'coins')


def test_command_line(tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, str(ROOT / 'tools/dataset_converters/coins.py'), *arguments],
                              capture_output=True, text=True, cwd=tmp_path, env={**os.environ, 'PYTHONPATH': str(ROOT)})

    done = run('--train-images', '2', '--val-images', '1')
    assert (done.returncode, done.stderr) == (0, '') and done.stdout.startswith('data/coins: 2 train images with ')
    assert run('--train-images', '2', '--val-images', '1').stdout == 'data/coins: already there\n'
    (tmp_path / 'file').touch()
    for out, message in (('file', 'error: file is a file; the coins data set needs a folder\n'),
                         ('file/coins', 'error: cannot write file/coins: ')):
        failed = run('--out', out)
        assert failed.returncode == 2 and failed.stdout == ''
        assert failed.stderr.startswith(message) and failed.stderr.count('\n') == 1
