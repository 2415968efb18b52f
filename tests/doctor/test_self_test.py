"""The self-test passes here, and fails for wrong results."""
import pytest
import torch
from torch import nn

from mmkcla.doctor import self_test
from mmkcla.layers import KCLA, known_layer_attentions, layer_attention_class


def levels(found):
    return [(one.check.split(' on ')[0], one.level) for one in found]


def test_layers():
    assert set(levels(self_test.check_layers())) == {('layers', 'ok')}
    shipped = [name for name in known_layer_attentions()
               if layer_attention_class(name).__module__.startswith('mmkcla.layers')]
    assert sorted(self_test.LAYER_VALUES) == sorted(shipped)


def test_layer_that_is_wrong(monkeypatch):
    before = KCLA.attend
    monkeypatch.setattr(KCLA, 'attend', lambda self, *args: (
        lambda result: (result[0] * 1.01, *result[1:]))(before(self, *args)))
    found = next(iter(self_test.check_layers()))
    assert found.level == 'problem' and found.value.startswith('KCLA deviates from the stored value by ')


def test_detector():
    assert set(levels(self_test.check_detector())) == {('detector', 'ok')}


def test_detector_that_is_wrong(monkeypatch):
    monkeypatch.setattr(self_test, 'NECK_VALUE', self_test.NECK_VALUE * 1.01)
    assert next(iter(self_test.check_detector())).level == 'problem'


def test_the_features_depend_on_the_layer_attentions():
    model = self_test.build_detector()
    assert self_test.neck_value(model) == pytest.approx(self_test.NECK_VALUE, rel=1e-3)
    with torch.no_grad():
        for parameter in model.backbone.layer_attentions.parameters():
            parameter.mul_(1.5)
    assert self_test.neck_value(model) != pytest.approx(self_test.NECK_VALUE, rel=1e-2)


def test_layer_attention_without_a_gradient():
    model = self_test.build_detector()
    assert 0 < self_test.training_loss(model) < float('inf')
    model.zero_grad()
    next(model.backbone.layer_attentions.parameters()).requires_grad_(False)
    assert self_test.training_loss(model) != self_test.training_loss(model)  # NaN


def test_checkpoint(monkeypatch):
    assert levels(self_test.check_checkpoint()) == [('checkpoint', 'ok')]
    read = 'mmkcla.weights.reading.read_checkpoint'
    monkeypatch.setattr(read, lambda path: torch.load(path, weights_only=False))  # runs code
    found, = self_test.check_checkpoint()
    assert found.level == 'problem' and found.value == 'a file that runs code was loaded'
    monkeypatch.setattr(read, lambda path: {'state_dict': {}})
    found, = self_test.check_checkpoint()
    assert found.value == 'a checkpoint changed between writing and reading'


def test_fixed_weights_use_no_random_numbers():
    modules = [self_test.fixed_weights(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))) for _ in range(2)]
    states = [module.state_dict() for module in modules]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert (states[0]['1.running_var'] > .6).all()
