"""Reports of mmkcla data verify on class folders and mask folders."""
import json
import shutil

import cv2
import numpy as np
import pytest
from class_folders import CLASSES, class_config, write_classes
from PIL import Image
from seg_folders import seg_config, write_pairs

from mmkcla.cli import main
from mmkcla.datasets.check import check_config, datasets_of
from mmkcla.datasets.classification.report import report_folder
from mmkcla.datasets.report import NOTE, REFUSED
from mmkcla.datasets.sheet import draw_sheet
from mmkcla.errors import UserError
from mmkcla.registry import DATA_REPORTS


def report(config, split):
    DATA_REPORTS.import_from_location()
    dataset, = datasets_of(config, split)
    write = next(DATA_REPORTS.module_dict[name] for name in dataset.ancestors if name in DATA_REPORTS.module_dict)
    return write(dataset, config)


@pytest.fixture
def folders(tmp_path):
    write_classes(tmp_path / 'train')
    write_classes(tmp_path / 'val', seed=1)
    return tmp_path


def drawn(found, path):
    samples = found.samples()
    draw_sheet(path, samples, found.classes, found.foreground)
    return samples, cv2.imread(str(path))


def test_class_folder(folders):
    found = report(class_config(folders), 'train')
    assert found.counts == {'images': 6, 'classes': dict.fromkeys(CLASSES, 2), 'width': '8 to 8', 'height': '8 to 8',
                            'bits per channel': {'8': 6}}
    assert not found.faults and found.title == f'train_dataloader.dataset: {folders}/train'
    samples, sheet = drawn(found, folders / 'sheet.png')
    assert {sample.caption.split()[0] for sample in samples} == set(CLASSES) and sheet is not None
    json.dumps(found.to_json())


def test_faults_of_a_class_folder(folders):
    shutil.copy(folders / 'train' / 'apple' / '0.png', folders / 'val' / 'apple' / '5.png')
    (folders / 'val' / 'apple' / '6.png').write_bytes(b'')
    shutil.rmtree(folders / 'val' / 'banana')
    found = report(class_config(folders, topk=(1, 5)), 'val')
    refused = found.of(REFUSED)
    assert [fault.kind.split(' of ')[0] for fault in refused] == [
        '1 class', '1', 'val_evaluator.topk=(1, 5) with 3 classes; write topk=(1,)']
    assert 'labels would shift' in refused[0].kind and 'cannot be read' in refused[1].kind
    assert refused[1].places == [f'{folders}/val/apple/6.png (the file is empty)']
    assert [fault.count for fault in found.of(NOTE)] == [1] and 'too optimistic' in found.of(NOTE)[0].kind
    assert 'banana' in found.text() and len(found.samples()) == 5  # without the empty file


def test_damage_behind_the_header_is_found(folders):
    path = folders / 'train' / 'apple' / '0.png'
    content = bytearray(path.read_bytes())
    at = content.index(b'IDAT') + 4
    content[at:at + 2] = b'\xff\xff'  # no compressed data
    path.write_bytes(bytes(content))
    assert any('cannot be read' in fault.kind for fault in report(class_config(folders), 'train').of(REFUSED))


def test_folder_without_a_config(folders):
    found = report_folder(folders)
    assert found.counts['images of train'] == 6 and found.counts['classes of val'] == dict.fromkeys(CLASSES, 2)
    assert not found.faults
    shutil.rmtree(folders / 'val' / 'apple')
    assert ['labels would shift' in fault.kind for fault in report_folder(folders).of(REFUSED)] == [True]
    assert report_folder(folders / 'train').counts['images'] == 6
    for other in (folders / 'train' / 'apple', folders / 'nothing', folders / 'val' / 'banana' / '0.png'):
        assert report_folder(other) is None
    assert report_folder(write_pairs(folders / 'prepared')) is None


def test_mask_folder(tmp_path):
    found = report(seg_config(write_pairs(tmp_path, (0, 1, 2, 255))), 'train')
    assert found.counts['images'] == found.counts['masks'] == 3
    assert found.counts['share of the pixels'] == {'sky': '25.00%', 'tree': '25.00%', 'road': '25.00%', '255': '25.00%'}
    assert found.counts['masks with the label'] == {'sky': 3, 'tree': 3, 'road': 3, '255': 3}
    assert not found.faults
    samples, sheet = drawn(found, tmp_path / 'sheet.png')
    assert len(samples) == 3 and set(np.unique(samples[0].mask)) == {0, 1, 2} and sheet is not None
    json.dumps(found.to_json())


def test_faults_of_a_mask_folder(tmp_path):
    write_pairs(tmp_path)
    Image.fromarray(np.full((6, 8), 9, np.uint8)).save(tmp_path / 'masks' / 'train' / '1.png')
    config = seg_config(tmp_path)
    config.model.decode_head.num_classes = 4
    kinds = [fault.kind for fault in report(config, 'train').of(REFUSED)]
    assert kinds[0] == '1 mask of another size than the image'
    assert kinds[1].startswith('1 of 3 masks have labels outside the 3 classes')
    assert kinds[2].startswith('model.decode_head.num_classes is 4')
    (tmp_path / 'masks' / 'train' / '2.png').unlink()
    assert '1 of 3 images have no mask' in report(config, 'train').text()


def write_masks(root, images, masks, suffix='', values=(0, 255)):
    """12 noise images, and masks with a square of the second value."""
    rng = np.random.default_rng(0)
    for folder in (root / images, root / masks):
        folder.mkdir(parents=True)
    for number in range(12):
        mask = np.full((16, 16), values[0], np.uint8)
        mask[4:9, 4:9] = values[1]
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(root / images / f'{number}.jpg')
        Image.fromarray(mask).save(root / masks / f'{number}{suffix}.png')


@pytest.mark.parametrize(('images', 'masks', 'suffix'), [
    ('images', 'masks', ''), ('img', 'label', ''), ('photos', 'truth', '_mask'), ('image', 'other', ''),
    ('img/patient_1', 'gt/patient_1', '_segmentation'), ('JPEGImages', 'SegmentationClass', ''),
    ('pictures', 'train_labels', '')])
def test_images_and_masks_are_not_classes(tmp_path, images, masks, suffix, capsys):
    write_masks(tmp_path, images, masks, suffix)
    first, second = (tmp_path / name.split('/')[0] for name in (images, masks))
    text = (f'{second} has masks of the images in {first}: these are not classes; prepare them with mmkcla data '
            f'binary-seg {first} {second}, or run mmkcla plan segmentation --images {first} --masks {second}')
    found = report_folder(tmp_path)
    assert [(fault.severity, fault.kind) for fault in found.faults] == [(REFUSED, text)]
    assert main(['plan', 'classification', '--images', str(tmp_path), '--out', str(tmp_path / 'out')]) == 2
    assert text in capsys.readouterr().err


def test_images_and_masks_in_splits_are_not_classes(tmp_path):
    for split in ('train', 'val'):
        write_masks(tmp_path / split, 'img', 'label')
    found = report_folder(tmp_path)
    assert [fault.kind.split(': these')[0] for fault in found.of(REFUSED)] == [
        f'{tmp_path}/{split}/label has masks of the images in {tmp_path}/{split}/img' for split in ('train', 'val')]


def test_a_run_with_images_and_masks_as_classes_is_refused(tmp_path):
    for split in ('train', 'val'):
        write_masks(tmp_path / split, 'img', 'label')
    config = class_config(tmp_path)
    for loader in (config['train_dataloader'], config['val_dataloader']):
        loader['dataset'].pop('metainfo', None), loader['dataset'].pop('classes', None)
    with pytest.raises(UserError, match='has masks of the images in .*: these are not classes'):
        check_config(config, ('train',))


def test_sketches_of_photographs_are_classes_with_a_remark(tmp_path):
    write_masks(tmp_path, 'photo', 'sketch')
    found = report_folder(tmp_path)
    assert found.counts['classes'] == {'photo': 12, 'sketch': 12} and not found.of(REFUSED)
    assert ['sketch looks like masks of the images in' in fault.kind for fault in found.of(NOTE)] == [True]


@pytest.mark.parametrize('other', ['names', 'photographs', 'masks'])
def test_classes_of_similar_files_are_classes(tmp_path, other):
    """Other names; photographs in both folders; drawings of few values in both."""
    write_masks(tmp_path, 'cat', 'masked owl')
    for number, path in enumerate(sorted((tmp_path / 'masked owl').iterdir())):
        if other == 'names':
            path.rename(path.with_name(f'owl{number + 50}.png'))
        elif other == 'photographs':
            shutil.copy(tmp_path / 'cat' / f'{path.stem}.jpg', path.with_suffix('.jpg'))
            path.unlink()
        else:
            shutil.copy(path, tmp_path / 'cat' / path.name)
            (tmp_path / 'cat' / f'{path.stem}.jpg').unlink()
    assert not any('masks of the images' in fault.kind for fault in report_folder(tmp_path).faults)
