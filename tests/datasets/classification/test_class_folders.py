"""Class folders and annotation lists: what is refused, what is said, and what passes."""
import inspect
import shutil

import mmpretrain.datasets as host
import numpy as np
import pytest
from class_folders import CLASSES, class_config, write_classes
from mmengine.dataset import BaseDataset
from PIL import Image

from mmkcla.datasets.check import check_config, datasets_of
from mmkcla.datasets.classification.check import classes_of
from mmkcla.errors import UserError
from mmkcla.registry import DATA_CHECKS


@pytest.fixture
def root(tmp_path):
    write_classes(tmp_path / 'train')
    write_classes(tmp_path / 'val', seed=1)
    return tmp_path


def refused(config, splits=('train', 'val')) -> str:
    with pytest.raises(UserError) as caught:
        check_config(config, splits)
    assert '\n' not in str(caught.value)
    return str(caught.value)


def host_labels(config, split):
    """The labels as mmpretrain itself reads them."""
    part = dict(config[f'{split}_dataloader'].dataset)
    kind = getattr(host, part.pop('type'))
    return [int(label) for label in kind(**part).get_gt_labels()]


def test_good_folders_pass_in_silence(root, capsys):
    check_config(class_config(root, topk=(1, 3)))
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('missing', ['apple', 'banana'])
def test_class_missing_in_val_shifts_the_labels(root, missing):
    shutil.rmtree(root / 'val' / missing)
    config = class_config(root)
    assert max(host_labels(config, 'val')) == 1  # the shift that mmpretrain does not mention
    line = refused(config)
    assert line == (f'val_dataloader.dataset: 1 class of train_dataloader.dataset without a folder in {root}/val, so '
                    f'that the labels would shift; add empty folders of these names: {missing}')
    (root / 'val' / missing).mkdir()  # the remedy
    check_config(class_config(root))
    kept = [label for label, name in enumerate(CLASSES) if name != missing]
    assert sorted(set(host_labels(config, 'val'))) == kept


def test_last_class_missing_shifts_nothing(root, capsys):
    shutil.rmtree(root / 'val' / 'cherry')
    config = class_config(root, topk=(1, 3))
    check_config(config)
    assert host_labels(config, 'val') == [0, 0, 1, 1]
    assert capsys.readouterr().err == (f'note: val_dataloader.dataset: 1 class of train_dataloader.dataset without a '
                                       f'folder in {root}/val: cherry\n')


def test_test_run_compares_with_the_training_folders(root):
    shutil.move(root / 'val', root / 'test')
    shutil.rmtree(root / 'test' / 'apple')
    config = class_config(root)
    config.test_dataloader = dict(dataset=dict(type='CustomDataset', data_root=str(root), data_prefix='test'))
    assert 'labels would shift' in refused(config, ('test',))
    shutil.rmtree(root / 'train')  # not on this machine: nothing to compare with
    assert 'num_classes' in refused(config, ('test',))


def test_extra_class(root):
    write_classes(root / 'val', ('avocado',), seed=2)
    assert 'missing from train_dataloader.dataset, so that the labels differ: avocado' in refused(class_config(root))


def test_class_that_differs_by_case(root):
    (root / 'val' / 'banana').rename(root / 'val' / 'Banana')
    assert "by case or spaces; rename them: 'Banana' for 'banana'" in refused(class_config(root))


def test_two_folders_that_differ_by_case(root):
    write_classes(root / 'train', ('Apple',), seed=3)
    assert "differ only by case or spaces are different classes; merge or rename them: 'Apple', 'apple'" in refused(
        class_config(root, classes=4))


@pytest.mark.parametrize('name', ['.ipynb_checkpoints', '__MACOSX'])
def test_folder_that_is_no_class(root, name):
    (root / 'train' / name).mkdir()
    config = class_config(root)
    assert 0 not in host_labels(config, 'train')  # mmpretrain makes it class 0
    assert f'become classes and shift the labels; remove them: {name}' in refused(config)


def test_folder_one_level_too_high(root):
    config = class_config(root)
    config.train_dataloader.dataset.data_prefix = ''
    assert "so the splits would be the classes; set data_prefix='train'" in refused(config)
    shutil.move(root / 'train', root / 'fruit')
    (root / 'train').mkdir()
    shutil.move(root / 'fruit', root / 'train' / 'fruit')
    assert 'has one class folder, fruit, and that has the sub-folders apple, banana, cherry' in refused(
        class_config(root))


def test_nested_skipped_loose_and_empty_are_said(root, capsys):
    (root / 'train' / 'apple' / 'red').mkdir()
    picture = Image.fromarray(np.random.default_rng(9).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    picture.save(root / 'train' / 'apple' / 'red' / '9.png')
    picture.save(root / 'train' / 'banana' / '9.webp')
    picture.save(root / 'train' / 'loose.png')
    (root / 'train' / 'notes.txt').write_text('not an image')
    shutil.rmtree(root / 'train' / 'cherry')
    (root / 'train' / 'cherry').mkdir()
    check_config(class_config(root, dict(classes=CLASSES)), ('train',))
    notes = capsys.readouterr().err.splitlines()
    assert [line.removeprefix('note: train_dataloader.dataset: ') for line in notes] == [
        '1 sub-folder of class folders; the images count to the class of the first folder: apple/red',
        f'1 image directly in {root}/train is skipped, since only class folders are read: loose.png',
        '1 image skipped because of the suffix (set extensions to add some): .webp (1)',
        '1 class folder without images: cherry']


def test_empty_class_folder(root, capsys):
    for split in ('train', 'val'):
        shutil.rmtree(root / split / 'banana')
        (root / split / 'banana').mkdir()
    assert refused(class_config(root)) == (
        'train_dataloader.dataset: 1 class folder of the training set without images, so that these classes are never '
        'learned; add images, remove the folders, or set classes if this is intended: banana')
    capsys.readouterr()
    check_config(class_config(root), ('val',))
    assert capsys.readouterr().err == 'note: val_dataloader.dataset: 1 class folder without images: banana\n'


@pytest.mark.parametrize('split', ['train', 'val'])
@pytest.mark.parametrize('stated', [False, True])
def test_class_lost_by_its_suffix(root, split, stated):
    for path in sorted((root / split / 'banana').iterdir()):
        path.rename(path.with_suffix('.webp'))
    options = dict(classes=CLASSES) if stated else {}
    assert refused(class_config(root, options, options), (split,)) == (
        f'{split}_dataloader.dataset: 1 class folder whose images all have suffixes that are not read; set extensions '
        'to add some, or convert the images: banana (2 .webp)')
    more = dict(options, extensions=('.png', '.webp'))
    check_config(class_config(root, more, more), (split,))


def test_same_image_in_two_classes(root, capsys):
    for name in ('apple', 'cherry'):
        shutil.copy(root / 'train' / 'banana' / '0.png', root / 'train' / name / 'copy.png')
    shutil.copy(root / 'train' / 'banana' / '1.png', root / 'train' / 'banana' / 'copy.png')
    check_config(class_config(root), ('train',))
    folder = root / 'train'
    assert capsys.readouterr().err == (
        'note: train_dataloader.dataset: 3 images with the same content as an image of another class, so that the '
        f'labels contradict each other: {folder}/apple/copy.png (apple) and {folder}/banana/0.png (banana) and '
        f'{folder}/cherry/copy.png (cherry)\n')
    check_config(class_config(root, write_list(root, 'banana/0.png 1\napple/copy.png 0\n')), ('train',))
    assert '2 images with the same content as an image of another class' in capsys.readouterr().err
    stated = dict(classes=CLASSES, **write_list(root, 'banana/0.png 1\napple/0.png 0\n'))
    check_config(class_config(root, stated), ('train',))
    assert capsys.readouterr().err == (f'note: train_dataloader.dataset: 1 class without an image in {root}/list.txt: '
                                       'cherry\n')


@pytest.mark.parametrize('name', [' banana', 'banana ', 'Banana', 'BANANA'])
def test_spaces_and_case(root, name):
    (root / 'val' / 'banana').rename(root / 'val' / name)
    assert f"by case or spaces; rename them: {name!r} for 'banana'" in refused(class_config(root))
    shutil.rmtree(root / 'val')
    write_classes(root / 'train', (name,), seed=7)
    assert f"merge or rename them: {', '.join(map(repr, sorted([name, 'banana'])))}" in refused(
        class_config(root, classes=4), ('train',))


def test_stated_classes(root):
    ordered = dict(classes=CLASSES)
    check_config(class_config(root, ordered, ordered))
    swapped = dict(metainfo=dict(classes=('banana', 'apple', 'cherry')))
    assert "names would be swapped; write classes=('apple', 'banana', 'cherry',)" in refused(
        class_config(root, swapped, swapped))
    check_config(class_config(root, *[dict(classes=('Apfel', 'Banane', 'Kirsche'))] * 2))  # names for display
    shutil.rmtree(root / 'val' / 'apple')
    assert '1 class without a folder in' in refused(class_config(root, ordered, ordered))
    write_classes(root / 'val', ('date', 'elder'), seed=4)
    assert 'has 4 class folders (banana, cherry, date and 1 more), but there are 3 classes' in refused(
        class_config(root, ordered, ordered))


def write_list(root, text: str) -> dict:
    (root / 'list.txt').write_text(text, encoding='utf-8')
    return dict(ann_file='list.txt')


GOOD = 'apple/0.png 0\nbanana/0.png 1\ncherry/0.png 2\n'


def test_annotation_list(root, capsys):
    check_config(class_config(root, write_list(root, GOOD)), ('train',))
    (root / 'train' / 'apple' / 'a b.png').write_bytes((root / 'train' / 'apple' / '1.png').read_bytes())
    config = class_config(root, write_list(root, GOOD + 'apple/a b.png 0\n'))
    check_config(config, ('train',))
    assert host_labels(config, 'train') == [0, 1, 2, 0]
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize(('text', 'words'), [
    ('apple/0.png 1\nbanana/0.png 2\ncherry/0.png 3\n', 'range 0 to 2 (they start at 1: subtract 1): 0.png (3)'),
    ('apple/0.png 0\nbanana/0.png 7\n', 'outside the range 0 to 2: 0.png (7)'),
    ('apple/0.png -1\n', '1 label of'),
    ('apple/0.png\t0\n', "is not '<name> <label>'"),
    ('apple/0.png,0\n', "is not '<name> <label>'"),
    ('apple/0.png  0\n', "is not '<name> <label>'"),
    ('apple/0.png apple\n', "is not '<name> <label>'"),
    ('apple/0.png 0.0\n', "is not '<name> <label>'"),
    ('apple/0.png\n', "is not '<name> <label>'"),
    ('apple/0.png 0\n\nbanana/0.png 1\n', "line 2 ('')"),
    ('apple/0.png 0\napple/0.png 1\n', 'with two labels: apple/0.png (0 and 1)'),
    ('apple/nothing.png 0\n', '1 of 1 image do not exist'),
    ('\ufeffapple/0.png 0\n', 'byte order mark'),
    ('', 'no images'),
])
def test_wrong_annotation_list(root, text, words):
    assert words in refused(class_config(root, write_list(root, text)), ('train',))


def test_annotation_list_of_another_order_than_the_training(root):
    both = write_list(root, GOOD)
    config = class_config(root, dict(both, classes=CLASSES), dict(both, classes=CLASSES[::-1]))
    assert ('(cherry, banana, apple) are not those of train_dataloader.dataset (apple, banana, cherry)'
            in refused(config))


@pytest.mark.parametrize(('content', 'words'), [
    (b'', 'the file is empty'), (b'no image at all', 'it is not an image'), (None, 'the PNG is truncated')])
def test_unreadable_image(root, content, words):
    path = root / 'train' / 'banana' / '1.png'
    path.write_bytes(path.read_bytes()[:100] if content is None else content)
    line = refused(class_config(root))
    assert line.startswith('train_dataloader.dataset: 1 of 6 images cannot be read; replace or remove them: ')
    assert f'banana/1.png ({words}' in line


def test_same_image_in_train_and_val(root, capsys):
    shutil.copy(root / 'train' / 'apple' / '0.png', root / 'val' / 'banana' / '7.png')
    check_config(class_config(root))
    assert capsys.readouterr().err == (
        'note: val_dataloader.dataset: 1 of 7 images are also in train_dataloader.dataset, so the metrics are too '
        f'optimistic: {root}/val/banana/7.png\n')


def test_number_of_classes_of_the_head(root):
    for wrong in (2, 4):
        assert refused(class_config(root, classes=wrong)).startswith(
            f'model.head.num_classes is {wrong}, but train_dataloader.dataset has 3 classes (apple, banana, cherry)')


def test_topk_beyond_the_classes(root):
    assert refused(class_config(root, topk=(1, 5)), ('val',)) == (
        'val_evaluator.topk=(1, 5) with 3 classes; write topk=(1,)')
    config = class_config(root, head=dict(topk=(1, 5), cal_acc=True))
    assert refused(config).startswith('model.head.topk=(1, 5) with 3 classes')
    check_config(class_config(root, head=dict(topk=(1, 5))))  # a head that computes no accuracy does not use it


def test_fixed_classes_check_the_head(tmp_path):
    config = class_config(tmp_path, dict(type='CIFAR10', split='train'), dict(type='CIFAR10', split='test'))
    del config.train_dataloader.dataset['data_prefix'], config.val_dataloader.dataset['data_prefix']
    assert 'num_classes' in refused(config)
    config.model.head.num_classes = 10
    config.val_evaluator.topk = (1, 5)
    check_config(config)
    config.val_evaluator.topk = (1, 50)
    assert 'topk=(1, 50) with 10 classes' in refused(config)


def test_every_data_set_of_the_host_is_decided():
    DATA_CHECKS.import_from_location()
    known = set(DATA_CHECKS.module_dict)
    kinds = {name: kind for name, kind in vars(host).items() if inspect.isclass(kind) and name != 'BaseDataset'
             and (issubclass(kind, BaseDataset) or name.endswith('Dataset'))}
    assert len(kinds) >= 20
    undecided = [name for name, kind in kinds.items() if not known & {parent.__name__ for parent in kind.__mro__}]
    assert not undecided


def test_own_subclass(root):
    from mmpretrain.registry import DATASETS

    class OwnReading(host.CustomDataset):
        def load_data_list(self):
            return []

    class OwnName(host.CustomDataset):
        pass

    for kind in (OwnReading, OwnName):
        DATASETS.register_module(module=kind, force=True)
    shutil.rmtree(root / 'train' / 'apple')
    check_config(class_config(root, dict(type='OwnReading')), ('train',))  # reads its files as it likes
    assert 'num_classes' in refused(class_config(root, dict(type='OwnName')), ('train',))


def test_classes_of(root):
    config = class_config(root)
    assert classes_of(datasets_of(config, 'val')[0]) == CLASSES


def test_keyword_that_the_data_set_does_not_know(root):
    assert 'train_dataloader.dataset cannot be built' in refused(class_config(root, dict(clases=3)))
