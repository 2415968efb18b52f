"""The confusion matrix that a test writes, against scikit-learn."""
import csv

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from PIL import Image
from sklearn.metrics import confusion_matrix

from mmkcla.errors import UserError
from mmkcla.evaluation.confusion import PICTURE, TABLE, ConfusionReport


def evaluate(folder, labels, predicted, classes=None, number=4, **options):
    metric = ConfusionReport(str(folder), **options)
    metric.dataset_meta = dict(classes=classes) if classes else None
    metric.process(None, [DataSample(img_path='a.png').set_gt_label(int(label)).set_pred_score(
        torch.eye(number)[guess]).to_dict() for label, guess in zip(labels, predicted, strict=True)])
    return metric.evaluate(len(labels))


def read(folder):
    with (folder / TABLE).open(encoding='utf-8') as file:
        return list(csv.DictReader(file))


def test_equal_to_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 4, (2, 60))
    labels[labels == 3] = 0  # no images of the last class
    names = ('true', 'a, b', '$c_d', 'last')
    assert evaluate(tmp_path, labels, predicted, names) == {}
    rows = read(tmp_path)
    assert [row['true'] for row in rows] == list(names)
    for kind, normalize in (('n', None), ('share', 'true')):
        expected = confusion_matrix(labels, predicted, labels=range(4), normalize=normalize)
        found = np.array([[float(row[f'{kind}: {name}'] or 0) for name in names] for row in rows])
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert {rows[3][f'share: {name}'] for name in names} == {''} and rows[3]['images'] == '0'
    with Image.open(tmp_path / PICTURE) as picture:
        assert min(picture.size) > 300


def test_names(tmp_path):
    """Without names the labels; equal names with their label; fewer names than scores: the rest as labels."""
    for classes, expected in ((None, ['0', '1', '2', '3']), (('a', 'b', 'a', 'c'), ['a (0)', 'b', 'a (2)', 'c']),
                              (('x', 'y'), ['x', 'y', '2', '3'])):
        evaluate(tmp_path, [0, 1], [1, 1], classes)
        assert [row['true'] for row in read(tmp_path)] == expected


def test_many_classes(tmp_path):
    evaluate(tmp_path / 'a', [0, 50], [50, 50], number=51)
    assert not (tmp_path / 'a').exists()
    evaluate(tmp_path / 'b', [0, 49], [49, 49], number=50)
    assert len(read(tmp_path / 'b')) == 50 and (tmp_path / 'b' / PICTURE).is_file()


def test_refused(tmp_path):
    with pytest.raises(UserError, match='a label is 7, but there are 4 classes'):
        evaluate(tmp_path, [7], [0])
    metric = ConfusionReport(str(tmp_path))
    with pytest.raises(UserError, match='needs one label for each image; a.png has 2'):
        metric.process(None, [dict(img_path='a.png', gt_label=torch.tensor([0, 1]))])
