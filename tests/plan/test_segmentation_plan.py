"""Plans for images and masks, and what comes of them."""
import json

import numpy as np
import pytest
from mask_folders import TISSUE, write_coin_masks, write_tissue_masks
from PIL import Image
from planned import check_project, contents, plan, train_and_test
from tiny import error_of

from mmkcla.paths import configs_root
from mmkcla.plan import machine


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(machine, '_ram', lambda: 16)
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)


def folders(data):
    return 'segmentation', '--images', data / 'images', '--masks', data / 'masks'


def test_coins_learn_from_their_plan(tmp_path, capsys):
    data, out = write_coin_masks(tmp_path / 'coins'), tmp_path / 'out'
    assert plan(*folders(data), '--out', out) == 0
    printed = capsys.readouterr().out
    config = check_project(out)
    before = contents(out)
    assert plan(*folders(data), '--out', out, '--overwrite') == 0
    assert contents(out) == before

    assert (config.image_size, config.train_dataloader.batch_size) == ((64, 64), 2)
    assert tuple(config.model.data_preprocessor.size) == (64, 64) and config.model.decode_head.out_channels == 1
    loaders = [config[f'{split}_dataloader'].dataset for split in ('train', 'val', 'test')]
    assert [loader.split for loader in loaders] == ['train', 'val', 'test']
    assert {loader.type for loader in loaders} == {'mmkcla.BinarySegDataset'}
    assert {loader.data_root for loader in loaders} == {str(out / 'data')}
    assert {tuple(loader.metainfo.classes) for loader in loaders} == {('background', 'foreground')}
    assert config.val_evaluator.type == 'mmkcla.BinarySegMetric'
    text = (out / 'kcla.py').read_text()
    assert "'models/unet_small'" in text and str(configs_root()) not in text

    found = json.loads((out / 'fingerprint.json').read_text())
    assert found['splits'] == {'train': 16, 'val': 2, 'test': 2} and found['images']['channels'] == {'1': 20}
    masks = [np.asarray(Image.open(path)) > 0 for path in sorted((data / 'masks').iterdir())]
    assert sum(counts['foreground'] for counts in found['pixels'].values()) == int(np.sum(masks))
    assert found['shares']['foreground']['100'] == pytest.approx(np.mean(masks, axis=(1, 2)).max(), rel=1e-5)
    assert f'foreground {np.mean(masks):.2%}' in printed

    metrics = train_and_test(out / 'kcla.py', tmp_path / 'work', 4)
    truth = np.mean([np.asarray(Image.open(path)) > 0 for path in sorted((out / 'data' / 'masks' / 'test').iterdir())])
    assert metrics['DSC_pooled'] > 2 * truth / (1 + truth) + 0.1  # all foreground would score that


def test_three_classes(tmp_path, capsys):
    data, out = write_tissue_masks(tmp_path / 'tissue'), tmp_path / 'out'
    assert plan(*folders(data), '--classes', ','.join(TISSUE), '--out', out) == 0
    assert 'without a pixel' not in capsys.readouterr().out
    assert plan(*folders(data), '--classes', ','.join(TISSUE) + ',ink', '--out', tmp_path / 'four') == 0
    assert 'train: classes without a pixel: 1 (ink)' in capsys.readouterr().out
    config = check_project(out, longest=70)
    head = config.model.decode_head
    assert (head.num_classes, head.out_channels, head.threshold) == (3, 3, None)
    assert config.train_dataloader.dataset.type == 'BaseSegDataset'
    assert tuple(config.test_dataloader.dataset.metainfo.classes) == TISSUE
    assert config.val_evaluator.iou_metrics == ['mIoU', 'mDice']
    assert config.default_hooks.checkpoint.save_best == 'mIoU'
    found = json.loads((out / 'fingerprint.json').read_text())
    pixels = np.bincount(np.concatenate([np.asarray(Image.open(path)).ravel()
                                         for path in (data / 'masks').iterdir()]), minlength=3)
    assert [sum(counts[name] for counts in found['pixels'].values()) for name in TISSUE] == pixels.tolist()
    assert found['ignored'] == 0 and pixels.all()
    metrics = train_and_test(out / 'kcla.py', tmp_path / 'work', 1)
    assert {'mIoU', 'mDice', 'aAcc'} <= metrics.keys()


def test_a_gpu_gets_a_resnet34(tmp_path):
    data = write_coin_masks(tmp_path / 'coins')

    def planned(name, *options):
        assert plan(*folders(data), '--out', tmp_path / name, '--device-memory', 12, *options) == 0
        return check_project(tmp_path / name)
    config = planned('pretrained')
    assert config.model.backbone.init_cfg.checkpoint == 'torchvision://resnet34'
    assert config.model.backbone.layer_attention.layer_scale_init == 0.
    assert config.model.data_preprocessor.mean == [123.675, 116.28, 103.53]
    config = planned('scratch', '--no-pretrained')
    assert config.model.backbone.init_cfg is None and config.model.backbone.depth == 34


def test_given_folders_are_the_splits(tmp_path):
    data, out = write_coin_masks(tmp_path / 'coins', images=12), tmp_path / 'out'
    for kind in ('images', 'masks'):
        for number, path in enumerate(sorted((data / kind).glob('*.png'))):
            split = 'train' if number < 8 else 'val'
            (data / kind / split).mkdir(exist_ok=True)
            path.rename(data / kind / split / path.name)
    assert plan(*folders(data), '--out', out) == 0
    config = check_project(out)
    assert json.loads((out / 'fingerprint.json').read_text())['splits'] == {'train': 8, 'val': 4}
    assert config.test_dataloader.dataset.split == 'val'
    assert 'no test images: the result is of the images' in (out / 'kcla.py').read_text()
    assert 'out/data/images/val' in (out / 'README.md').read_text()


def test_what_is_left_out_is_said(tmp_path, capsys):
    data, out = write_coin_masks(tmp_path / 'coins'), tmp_path / 'out'
    Image.new('L', (5, 5)).save(data / 'masks' / '03.png')
    assert plan(*folders(data), '--out', out) == 0
    assert 'size mismatch (left out): 1 (' in capsys.readouterr().out
    assert sum(json.loads((out / 'fingerprint.json').read_text())['splits'].values()) == 19


def test_refusals(tmp_path, capsys):
    data, out = write_coin_masks(tmp_path / 'coins'), tmp_path / 'out'
    common = ('plan', *folders(data), '--out', out)
    assert 'no images in val; a plan needs train and val' in error_of(capsys, *common, '--split', '7:3')
    assert 'no ImageNet weights of the small network' in error_of(capsys, *common, '--pretrained')
    assert 'split' in error_of(capsys, *common, '--split', 'half')
    assert not out.exists() and not list(tmp_path.glob('.out*'))
