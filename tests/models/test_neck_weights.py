"""Weights of necks: where they start, what init_cfg brings, and FPN's in a list."""
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from small_nets import equal
from torch import nn

from mmkcla.checkpoint import compare, state_dict_for
from mmkcla.models.necks import KCLAFPN, EfficientAttentionNeck, LayerAttentionNeck

KCLA = dict(type='KCLA', head_channels=4)
WIDTHS = [8, 16, 32]
NECKS = {
    'LayerAttentionNeck': lambda **kwargs: LayerAttentionNeck(16, 3, KCLA, **kwargs),
    'EfficientAttentionNeck': lambda **kwargs: EfficientAttentionNeck(16, 3, **kwargs),
    'KCLAFPN': lambda **kwargs: KCLAFPN(WIDTHS, 16, 3, layer_attention=KCLA, **kwargs),
}


def drawn(neck):
    with torch.no_grad():
        for parameter in neck.parameters():
            parameter.normal_()
    return neck


@pytest.mark.parametrize('name', list(NECKS))
def test_pretrained_weights_are_the_last_word(name, tmp_path):
    """The layers' own start comes before them; a second call changes nothing, as in mmengine."""
    trained = drawn(NECKS[name]())
    torch.save(dict(state_dict={f'neck.{key}': value for key, value in trained.state_dict().items()}),
               tmp_path / 'w.pth')
    neck = NECKS[name](init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'w.pth'), prefix='neck.'))
    for _ in range(2):
        neck.init_weights()
        assert all(torch.equal(value, trained.state_dict()[key]) for key, value in neck.state_dict().items())


@pytest.mark.parametrize('name', list(NECKS))
def test_a_second_initialisation_keeps_what_was_learned(name):
    neck = NECKS[name]()
    neck.init_weights()
    learned = {key: value.clone() for key, value in drawn(neck).state_dict().items()}
    neck.init_weights()
    assert all(torch.equal(value, learned[key]) for key, value in neck.state_dict().items())


@pytest.mark.parametrize('name', ['LayerAttentionNeck', 'EfficientAttentionNeck'])
def test_rules_of_init_cfg_do_not_undo_the_start(name):
    neck = NECKS[name](init_cfg=dict(type='Xavier', layer='Conv2d'))
    neck.init_weights()
    levels = tuple(torch.randn(2, 16, 8 // 2 ** i, 8 // 2 ** i) for i in range(3))
    assert equal(neck(levels), levels)


class Detector(nn.Module):
    def __init__(self, neck):
        super().__init__()
        from mmengine.registry import MODELS
        self.backbone = nn.Conv2d(3, 8, 1)
        with DefaultScope.overwrite_default_scope('mmdet'):
            self.neck = MODELS.build([ConfigDict(part) for part in neck] if isinstance(neck, list) else neck)


FPN = dict(type='FPN', in_channels=WIDTHS, out_channels=16, num_outs=3)
EA = dict(type='mmkcla.EfficientAttentionNeck', in_channels=16, num_levels=3)


@pytest.mark.parametrize('parts, index', [([FPN, EA], 0), ([dict(EA, in_channels=WIDTHS), FPN, EA], 1)])
def test_a_checkpoint_with_a_plain_fpn_fills_the_fpn_of_a_list(parts, index):
    plain, ours = Detector(FPN), Detector(parts)
    weights = state_dict_for(ours, dict(state_dict=plain.state_dict()))
    report = compare(ours, weights)
    assert not report.unexpected and not report.mismatched
    assert report.missing and not any(name.startswith((f'neck.{index}.', 'backbone.')) for name in report.missing)
    ours.load_state_dict(weights, strict=False)
    maps = tuple(torch.randn(1, width, 8, 8) for width in WIDTHS)
    assert equal(ours.neck(maps), plain.neck(maps))
    own = ours.state_dict()
    assert set(state_dict_for(ours, dict(state_dict=own))) == set(own)  # its own names stay as they are
    assert set(state_dict_for(plain, dict(state_dict=plain.state_dict()))) == set(plain.state_dict())
