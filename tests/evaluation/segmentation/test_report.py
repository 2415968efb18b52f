"""What an evaluation of two classes leaves behind, and what it calls its scores."""
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from segmentation_samples import cases, evaluate, predicted, sample

from mmkcla.evaluation import BinarySegMetric


def faultless(number, folder):
    """Samples whose prediction is the truth."""
    truth = np.zeros((8, 8))
    truth[2:5, 2:6] = 1
    logits = torch.stack([torch.zeros(8, 8), torch.as_tensor(truth * 8 - 4).float()])[None]
    return [predicted(logits, [sample(truth, f'{folder}/right{n}.jpg', network=(8, 8))])[0] for n in range(number)]


def test_an_image_without_a_fault_is_not_among_the_worst(tmp_path):
    right, wrong = faultless(3, 'f'), cases(2, folder='f/')
    metrics = evaluate([*right, *wrong], out_dir=str(tmp_path / 'o'), bootstrap=0)
    assert metrics['IoU_mean'] < 1
    pictures = sorted(path.name for path in (tmp_path / 'o' / 'worst').iterdir())
    assert sorted(name.split('_')[1] for name in pictures) == ['000.png', '001.png']
    assert (tmp_path / 'o' / 'per_image.csv').read_text().count('\n') == 6
    assert evaluate(right, out_dir=str(tmp_path / 'o'), bootstrap=0)['IoU_mean'] == 1
    assert not list((tmp_path / 'o' / 'worst').iterdir())  # and those of the evaluation before are gone
    evaluate(right, out_dir=str(tmp_path / 'new'), bootstrap=0)
    assert [path.name for path in (tmp_path / 'new').iterdir()] == ['per_image.csv']


@pytest.mark.parametrize('options', [
    dict(bootstrap=0), dict(bootstrap=9, hd95=True), dict(bootstrap=9, boundary_f1=True, polyp_protocol=True),
    dict(bootstrap=0, prefix='test', hd95=True, empty='skip')])
def test_names_are_known_beforehand(options):
    assert sorted(BinarySegMetric(**options).names) == sorted(evaluate(cases(2), **options))


def test_every_key_is_explained():
    text = (Path(__file__).parents[3] / 'docs' / 'segmentation-metrics.md').read_text(encoding='utf-8')
    explained = set(re.findall(r'`([\w<>]+)`', text))
    for name in BinarySegMetric(hd95=True, boundary_f1=True, polyp_protocol=True, bootstrap=9).names:
        score, _, kind = name.rpartition('_')
        assert name in explained or {'pooled': {score, '<score>_pooled'}, 'mean': {score, '<score>_mean'}}.get(
            kind, {'<key>_lo', '<key>_hi'}) <= explained, name
