"""The medical way, whole: download, converter, check, training, and a test with and without augmentation."""
import json
import shutil

import pytest
import torch
from mmengine.structures import PixelData

from mmkcla.cli import main
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.samples import make_samples

NAME = 'unet-kcla-small_coins'
SHORT = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'train_dataloader.batch_size=2']


@pytest.fixture(scope='module')
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp('medical')
    make_samples(folder / 'raw', 'isic2017', count=(4, 2, 2))
    convert_isic2017(folder / 'raw', folder / 'data' / 'coins_isic2017', progress=False)
    return folder


def test_train_then_test(workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    assert main(['train', NAME, '--work-dir', 'out', '--cfg-options', *SHORT]) == 0
    results = {}
    for name, options in (('plain', []), ('tta', ['--tta'])):
        assert main(['test', NAME, 'out/iter_2.pth', '--work-dir', name, *options, '--cfg-options',
                     f'test_evaluator.out_dir={name}']) == 0
        results[name] = json.loads((workshop / name / 'metrics.json').read_text())
        assert (workshop / name / 'per_image.csv').read_text().count('\n') == 3
        assert len(list((workshop / name / 'worst').glob('*.png'))) == 2
    assert 0 <= results['plain']['DSC_pooled'] <= 1 and results['plain'] != results['tta']
    assert {'DSC_pooled_lo', 'IoU_mean', 'TJ65_mean', 'failed_share'} <= results['plain'].keys()


@pytest.mark.parametrize(('damage', 'message'), [
    (lambda root: next((root / 'masks/train').iterdir()).unlink(), 'the data set data/coins_isic2017 is damaged: '),
    (lambda root: (root / 'images/train').rename(root / 'images/old'), 'no folder data/coins_isic2017/images/train'),
])
def test_damaged_set_is_refused(workshop, tmp_path, monkeypatch, capsys, damage, message):
    shutil.copytree(workshop / 'data', tmp_path / 'data')
    monkeypatch.chdir(tmp_path)
    damage(tmp_path / 'data' / 'coins_isic2017')
    assert main(['train', NAME, '--cfg-options', *SHORT]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith('error: ' + message)


def test_head_must_count_two_classes(workshop, monkeypatch, capsys):
    monkeypatch.chdir(workshop)
    assert main(['train', NAME, '--cfg-options', *SHORT, 'model.decode_head.num_classes=3']) == 2
    assert 'model.decode_head.num_classes is 3, but train_dataloader.dataset has 2' in capsys.readouterr().err


def views(*maps):
    from mmseg.structures import SegDataSample
    return [SegDataSample(seg_logits=PixelData(data=torch.tensor(m))) for m in maps]


def test_tta_averages_probabilities():
    from mmkcla.models.segmentors import BinarySegTTAModel
    model = BinarySegTTAModel.__new__(BinarySegTTAModel)
    torch.nn.Module.__init__(model)
    model.module = torch.nn.Module()
    model.module.decode_head = torch.nn.Module()
    model.module.decode_head.threshold = 0.5
    one, = model.merge_preds([views([[[0.2, 0.9]]], [[[0.6, 0.3]]])])
    torch.testing.assert_close(one.seg_logits.data, torch.tensor([[[0.4, 0.6]]]))
    assert one.pred_sem_seg.data.tolist() == [[[0., 1.]]]
    two, = model.merge_preds([views([[[0.]], [[2.]]], [[[0.]], [[-1.]]])])
    shares = (torch.tensor([0., 2.]).softmax(0) + torch.tensor([0., -1.]).softmax(0)) / 2
    torch.testing.assert_close(two.seg_logits.data.flatten().exp(), shares)
    assert two.pred_sem_seg.data.item() == int(shares.argmax())
