"""Plans for class folders, and what comes of them."""
import json

import numpy as np
import pytest
from digit_folders import write_digits
from mmengine.config import Config
from PIL import Image
from planned import check_project, contents, plan, train_and_test
from skimage import data
from tiny import error_of

from mmkcla.plan import machine


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(machine, '_ram', lambda: 16)
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)


@pytest.fixture
def photographs(tmp_path):
    """Crops of 72 px of two photographs that scikit-image ships, as two classes: 10 and 40."""
    random = np.random.default_rng(0)
    for name, photo, number in (('tissue', data.immunohistochemistry(), 10), ('cat', data.chelsea(), 40)):
        (tmp_path / 'photos' / name).mkdir(parents=True)
        for i in range(number):
            y, x = random.integers(0, 200, 2)
            Image.fromarray(photo[y:y + 72, x:x + 72]).save(tmp_path / 'photos' / name / f'{i:02d}.jpg', quality=95)
    return tmp_path / 'photos'


def test_digits_learn_from_their_plan(tmp_path):
    digits = write_digits(tmp_path / 'digits', most=50)
    out = tmp_path / 'out'
    assert plan('classification', '--images', digits, '--out', out) == 0
    config = check_project(out)
    assert config.model.backbone.type == 'mmkcla.CifarLayerAttentionResNet'
    assert config.model.head.num_classes == config.data_preprocessor.num_classes == 10
    assert tuple(config.topk) == tuple(config.model.head.topk) == (1, 5)
    assert (config.image_size, config.train_dataloader.batch_size) == (16, 32)
    assert 'RandomFlip' not in str(config.train_dataloader)  # grey
    before = contents(out)
    assert plan('classification', '--images', digits, '--out', out, '--overwrite') == 0
    assert contents(out) == before

    lists = {split: dict(line.rsplit(' ', 1) for line in
                         (out / 'annotations' / f'{split}.txt').read_text().splitlines()) for split in ('train', 'val')}
    assert [len(part) for part in lists.values()] == [400, 100] and not set(lists['train']) & set(lists['val'])
    assert all(name.split('/')[0] == label for part in lists.values() for name, label in part.items())
    assert all(list(lists['val'].values()).count(str(digit)) == 10 for digit in range(10))

    metrics = train_and_test(out / 'kcla.py', tmp_path / 'work', 4)
    assert metrics['accuracy/top1'] > 30  # chance: 10, measured 42


def test_photographs_get_a_resnet18(photographs, tmp_path):
    out = tmp_path / 'out'
    assert plan('classification', '--images', photographs, '--out', out, '--no-pretrained') == 0
    config = check_project(out)
    assert config.model.backbone.depth == 18 and 'init_cfg' not in config.model.backbone
    assert (config.image_size, config.train_dataloader.batch_size) == (96, 16)
    assert tuple(config.topk) == (1,) and tuple(config.classes) == ('cat', 'tissue')
    assert 'RandomFlip' in str(config.train_dataloader)
    # four times as many cats: accuracy alone would favour them
    assert config.default_hooks.checkpoint.save_best == 'single-label/f1-score'
    assert config.val_evaluator[1].type == 'SingleLabelMetric'
    found = json.loads((out / 'fingerprint.json').read_text())
    assert found['counts'] == {'train': {'cat': 32, 'tissue': 8}, 'val': {'cat': 8, 'tissue': 2}}
    assert {'split': 'train', 'what': 'classes with fewer than 10 images', 'count': 1, 'first': ['tissue: 8']} in found[
        'problems']
    metrics = train_and_test(out / 'kcla.py', tmp_path / 'work', 1)
    assert {'accuracy/top1', 'single-label/f1-score'} <= metrics.keys()


def test_a_gpu_gets_a_resnet50_with_weights(photographs, tmp_path):
    out = tmp_path / 'out'
    assert plan('classification', '--images', photographs, '--out', out, '--device-memory', 16) == 0
    backbone = check_project(out).model.backbone
    assert (backbone.depth, backbone.init_cfg.checkpoint) == (50, 'torchvision://resnet50')
    assert backbone.layer_attention.layer_scale_init == 0.


def test_given_splits_are_kept(photographs, tmp_path):
    for split, chosen in (('train', '0'), ('valid', '1'), ('test', '2')):
        for name in ('cat', 'tissue'):
            (tmp_path / 'split' / split / name).mkdir(parents=True)
            for path in (photographs / name).glob(f'{chosen}*.jpg') if name == 'cat' else (photographs / name).glob(
                    f'*{chosen}.jpg'):
                (tmp_path / 'split' / split / name / path.name).write_bytes(path.read_bytes())
    out = tmp_path / 'out'
    assert plan('classification', '--images', tmp_path / 'split', '--out', out, '--no-pretrained') == 0
    assert json.loads((out / 'fingerprint.json').read_text())['splits'] == {'train': 11, 'val': 11, 'test': 11}
    config = Config.fromfile(out / 'kcla.py')
    assert config.test_dataloader.dataset.ann_file == str(out / 'annotations' / 'test.txt')
    assert (out / 'annotations' / 'val.txt').read_text().startswith('valid/cat/10.jpg 0\n')


def test_refusals(photographs, tmp_path, capsys):
    common = ('plan', 'classification', '--out', tmp_path / 'out', '--images')
    assert 'has 0 class folders' in error_of(capsys, *common, photographs / 'cat')
    (photographs / 'empty').mkdir()
    assert 'no images' in error_of(capsys, *common, photographs) and not (tmp_path / 'out').exists()
    (photographs / 'empty').rmdir()
    stray = photographs / 'stray.jpg'
    stray.write_bytes((photographs / 'cat' / '00.jpg').read_bytes())
    assert '1 images in no class folder: stray.jpg' in error_of(capsys, *common, photographs)
    stray.unlink()
    for split, names in (('train', ('cat', 'dog')), ('val', ('cat', 'fox'))):
        for name in names:
            (tmp_path / 'other' / split / name).mkdir(parents=True)
            Image.new('L', (9, 9), len(name + split)).save(tmp_path / 'other' / split / name / 'a.png')
    assert 'dog, fox is in one of them only, so labels would shift' in error_of(capsys, *common, tmp_path / 'other')


def test_one_picture_in_two_classes_is_said(photographs, tmp_path, capsys):
    (photographs / 'tissue' / 'cat.jpg').write_bytes((photographs / 'cat' / '00.jpg').read_bytes())
    assert plan('classification', '--images', photographs, '--out', tmp_path / 'out', '--no-pretrained') == 0
    assert 'images in more than one class: 2 (cat/00.jpg, tissue/cat.jpg)' in capsys.readouterr().out


def test_files_of_other_types_are_counted(photographs, tmp_path, capsys):
    Image.new('L', (40, 40)).save(photographs / 'cat' / 'g.gif')
    (photographs / 'cat' / 'Thumbs.db').write_bytes(b'x')
    assert plan('classification', '--images', photographs, '--out', tmp_path / 'out', '--no-pretrained') == 0
    out = capsys.readouterr().out
    assert 'files of other types (skipped; known types: .jpg' in out and '1 (cat/g.gif)' in out
