"""Masks that have one class only: there is nothing to learn, and what is said of it."""
import numpy as np
import pytest
from PIL import Image
from seg_folders import seg_config, write_pairs

from mmkcla.cli import main
from mmkcla.datasets.check import check_config
from mmkcla.datasets.segmentation.converters.folders import convert_folders
from mmkcla.datasets.segmentation.verify import verify
from mmkcla.errors import UserError


def write(root, values, kind='png'):
    """Ten noise images, and masks with a square of the second value in the first; ``values`` of each mask in turn."""
    rng = np.random.default_rng(0)
    for folder in (root / 'images', root / 'masks'):
        folder.mkdir(parents=True)
    for number in range(10):
        around, inside = values[number % len(values)]
        mask = np.full((16, 16), around, np.uint8)
        mask[4:9, 4:9] = inside
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(root / 'images' / f'{number}.png')
        Image.fromarray(mask).save(root / 'masks' / f'{number}.{kind}')
    return root / 'images', root / 'masks', root / 'out'


@pytest.mark.parametrize(('values', 'options', 'message'), [
    ([(255, 255)], {}, r'every pixel of all 10 masks is foreground \(above 0\), so there is nothing to learn; check '
                       'the folder of the masks$'),
    ([(1, 1)], {}, 'every pixel of all 10 masks is foreground'),
    ([(130, 200)], dict(threshold=100), r'is foreground \(above 100\), .*; check the folder of the masks, or raise '
                                        '--threshold'),
    ([(0, 0)], {}, 'not one of the 10 masks has foreground'),
    ([(1, 1)], dict(num_classes=3), 'all masks have only the class class_1, so there is nothing to learn'),
    ([(0, 0)], dict(classes='sky,tree,road'), 'all masks have only the class sky, so there is nothing to learn'),
    ([(2, 255)], dict(num_classes=3), 'all masks have only the class class_2, so there'),
    ([(0, 255)], dict(classes='sky,tree,road'), 'the masks have only the values 0 and 255, and 255 means "ignore" in '
     'masks of classes, so nothing but sky would be learned; for foreground of 255, leave out --num-classes'),
    ([(0, 255)], dict(num_classes=2), 'the masks have only the values 0 and 255'),
    ([(0, 255), (0, 0)], dict(num_classes=5), 'the masks have only the values 0 and 255')])
def test_a_conversion_is_refused(tmp_path, values, options, message):
    images, masks, out = write(tmp_path, values)
    with pytest.raises(UserError, match=message):
        convert_folders(images, masks, out, **options)
    assert not out.exists()


@pytest.mark.parametrize(('values', 'options', 'foreground'), [
    ([(0, 255), (255, 255), (0, 0)], {}, 4 * 25 + 3 * 256), ([(0, 255)], dict(classes='a,b'), 250),
    ([(0, 1), (0, 255)], dict(num_classes=2), 5 * 25)])
def test_some_masks_of_one_class_are_no_fault(tmp_path, values, options, foreground):
    images, masks, out = write(tmp_path, values)
    convert_folders(images, masks, out, split='train', **options)
    found = [np.asarray(Image.open(path)) for path in (out / 'masks/train').iterdir()]
    assert sum((mask == 1).sum() for mask in found) == foreground and verify(out) == []


def test_a_test_set_may_have_one_class(tmp_path):
    images, masks, out = write(tmp_path, [(1, 1)])
    convert_folders(images, masks, out, split='test', num_classes=3)
    assert verify(out) == []


@pytest.mark.parametrize('value', [0, 1])
def test_a_prepared_training_set_of_one_value_is_a_problem(tmp_path, value):
    for split in ('train', 'test'):
        for kind in ('images', 'masks'):
            (tmp_path / kind / split).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, split in enumerate(['train'] * 3 + ['test']):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(tmp_path / f'images/{split}/{number}.png')
        mask = np.full((8, 8), value, np.uint8)
        Image.fromarray(mask).save(tmp_path / f'masks/{split}/{number}.png')
    problem = f'masks/train: every pixel of all 3 masks is {value}: there is nothing to learn'
    assert verify(tmp_path) == [problem]
    mask[0, 0] = 1 - value
    Image.fromarray(mask).save(tmp_path / 'masks/train/1.png')
    assert verify(tmp_path) == []


def test_a_run_is_refused(tmp_path):
    write_pairs(tmp_path, (2,))
    with pytest.raises(UserError, match=r'all masks have only class 2 \(road\): there is nothing to learn'):
        check_config(seg_config(tmp_path), ('train',))


def test_a_run_of_several_classes_with_masks_of_0_and_255_names_the_cause(tmp_path):
    write_pairs(tmp_path, (0, 255))
    with pytest.raises(UserError, match='only the values 0 and 255, and 255 is ignored, .*; if 255 is foreground, '
                                        'prepare them with mmkcla data binary-seg, or replace 255 by its label'):
        check_config(seg_config(tmp_path), ('train',))


def test_the_command_says_it_in_one_line(tmp_path, capsys):
    images, masks, out = write(tmp_path, [(255, 255)])
    assert main(['data', 'binary-seg', str(images), str(masks), '--out', str(out)]) == 2
    assert capsys.readouterr().err.count('\n') == 1
