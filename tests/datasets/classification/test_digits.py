"""scikit-learn's digits as a data set."""
import json

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from sklearn.datasets import load_digits

from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import prepare_hosts
from mmkcla.runtime.inference.base import build_model


def build(split):
    return DATASETS.build(dict(type='mmkcla.DigitsDataset', split=split, pipeline=[]))


def test_splits_share_no_scan_and_hold_all():
    train, test = build('train'), build('test')
    assert (len(train), len(test)) == (1433, 364)
    names = [{entry['img_path'] for entry in (data[i] for i in range(len(data)))} for data in (train, test)]
    assert not names[0] & names[1] and len(names[0] | names[1]) == 1797
    assert np.bincount([test[i]['gt_label'] for i in range(len(test))]).min() >= 35


def test_pixels_are_the_scans():
    digits, data = load_digits(), build('test')
    entry = data[5]
    index = int(entry['img_path'].removeprefix('digit'))
    assert entry['gt_label'] == digits.target[index] and entry['img'].shape == (8, 8, 3)
    np.testing.assert_allclose(entry['img'][..., 1] / (255 / 16), digits.images[index], atol=0.04)


def test_unknown_split():
    with pytest.raises(UserError, match="split='val' is unknown; choose one of: train, test"):
        build('val')


def test_config_trains_a_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(['train', 'kcla-resnet20_digits', '--cfg-options', 'train_cfg.max_epochs=1',
                 'train_dataloader.dataset.indices=128', 'train_cfg.val_interval=1']) == 0
    assert (tmp_path / 'work_dirs' / 'kcla-resnet20_digits' / 'curves.png').is_file()


def test_files_are_classified_as_the_data_are(tmp_path):
    config = load_config('kcla-resnet20_digits', [])
    prepare_hosts(config)
    init_default_scope(config.default_scope)
    model = build_model(config).eval()
    torch.save(model.state_dict(), tmp_path / 'weights.pth')
    scan = build('test')[3]
    Image.fromarray(scan['img']).save(tmp_path / 'scan.png')
    assert main(['infer', 'kcla-resnet20_digits', str(tmp_path / 'weights.pth'), str(tmp_path / 'scan.png'),
                 '--device', 'cpu', '--out-dir', str(tmp_path / 'out')]) == 0
    found = json.loads((tmp_path / 'out' / 'predictions.json').read_text())['images'][0]['predictions'][0]
    dataset = DATASETS.build(config.test_dataloader.dataset)
    with torch.no_grad():
        expected = model.test_step({key: [value] for key, value in dataset[3].items()})[0].pred_score
    assert found['label'] == expected.argmax() and found['class'] == str(found['label'])
    assert found['score'] == pytest.approx(expected.max().item(), abs=1e-5)
