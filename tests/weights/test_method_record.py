"""A checkpoint knows the methods that made it; weights that fit another method by name and shape are refused."""
import itertools

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import (
    KCLA,
    DotProductAttention2d,
    EfficientAttention,
    EfficientLayerAttention,
    MRLABase,
    SoftmaxLayerAttention,
    known_layer_attentions,
    layer_attention_class,
)
from mmkcla.models.backbones.cifar_resnet import CifarLayerAttentionResNet
from mmkcla.models.necks import LayerAttentionNeck
from mmkcla.version import __version__
from mmkcla.weights.convert.write import write_weights
from mmkcla.weights.matching import compare
from mmkcla.weights.method_record import differences, make_record, methods_of, require_same_method
from mmkcla.weights.reading import read_checkpoint

NAMES = [name for name in known_layer_attentions() if layer_attention_class(name).__module__.startswith('mmkcla.')]


class Net(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part


def stage(name, **options):
    return Net(layer_attention_class(name).build_stage(32, 2, **options))


def saved(model, classes=None):
    weights = model.state_dict()
    return dict(state_dict=weights, meta=dict(mmkcla=make_record(model, weights, classes)))


def message(model, checkpoint):
    with pytest.raises(UserError) as error:
        require_same_method(differences(model, checkpoint), 'a.pth', '; or use --allow-partial')
    assert '\n' not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize('name', NAMES)
def test_a_method_loads_its_own_checkpoint(name):
    options = layer_attention_class(name).cifar_options
    assert differences(stage(name, **options), saved(stage(name, **options))) == []
    # options that do not change what the trained layer computes
    changed = dict(options, drop_path=0.5, with_cp=True)
    assert differences(stage(name, **changed), saved(stage(name, **options))) == []


@pytest.mark.parametrize(('name', 'other'), itertools.permutations(NAMES, 2))
def test_every_other_method_is_refused(name, other):
    both = [stage(one, **layer_attention_class(one).cifar_options) for one in (name, other)]
    found = differences(both[1], saved(both[0]))
    assert {one.kind for one in found} == {'method'} and found[0].saved == name and found[0].here == other
    assert message(both[1], saved(both[0])).startswith(
        f'checkpoint a.pth was made with {name}, the config has {other} (part.0 and 1 more); use the config of {name} ')
    assert '--allow-partial' not in message(both[1], saved(both[0]))


def test_weights_of_these_methods_cannot_be_told_apart_by_names_and_shapes():
    mrla = stage('MRLABase', head_channels=16)
    for other in ('SoftmaxLayerAttention', 'LinearLayerAttention'):
        assert compare(stage(other, head_channels=16), mrla.state_dict()).complete


@pytest.mark.parametrize(('make', 'option', 'values'), [
    (MRLABase, 'head_channels', (16, 8)), (SoftmaxLayerAttention, 'head_channels', (16, 8)),
    (KCLA, 'dynamic_value', (True, False)), (KCLA, 'relu', (True, False)), (KCLA, 'scale_by_width', (False, True)),
    (KCLA, 'gate_key', ('current', 'accumulated')), (KCLA, 'temperature', ('fixed', 'learnable')),
    (EfficientAttention, 'num_heads', (1, 2)), (EfficientAttention, 'normalization', ('softmax', 'scaling')),
    (EfficientAttention, 'residual', (True, False)), (EfficientLayerAttention, 'num_heads', (1, 4))])
def test_an_option_that_shapes_do_not_show(make, option, values):
    base = dict(head_channels=16) if make is KCLA else {}
    old, new = (Net(make(32, **{**base, option: value})) for value in values)
    assert compare(new, old.state_dict()).complete
    assert [one[1:] for one in differences(new, saved(old)) if one.path == 'part'] == [(option, *values)]
    assert f'was made with {option}={values[0]!r}, the config has {option}={values[1]!r} in part' in message(
        new, saved(old))


def test_the_direction_of_a_neck():
    down, up = (LayerAttentionNeck(32, 3, dict(type='KCLA', head_channels=16), direction)
                for direction in ('coarse_to_fine', 'fine_to_coarse'))
    assert compare(up, down.state_dict()).complete
    assert differences(up, saved(down))[0] == ('passes.0', 'shrinks', False, True)


def test_equal_options_written_in_another_way():
    assert differences(Net(EfficientAttention(32, key_channels=16)), saved(Net(EfficientAttention(32)))) == []
    assert differences(Net(KCLA(32, 16, temperature_range=[0.5, 2])), saved(Net(KCLA(32, head_channels=16)))) == []
    old, new = Net(EfficientAttention(32)), Net(DotProductAttention2d(32))
    assert differences(new, saved(old)) == [('part', 'method', 'EfficientAttention', 'DotProductAttention2d')]


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_the_record_is_read_back(tmp_path, suffix):
    model = stage('MRLABase', head_channels=16)
    write_weights(tmp_path / f'a{suffix}', model.state_dict(),
                  dict(mmkcla=make_record(model, model.state_dict(), ('red', 'blue'))))
    content = read_checkpoint(tmp_path / f'a{suffix}')
    assert content['meta']['mmkcla'] == dict(
        version=__version__, classes=['red', 'blue'],
        methods={f'part.{i}': dict(type='MRLABase', options=dict(head_channels=16)) for i in range(2)})
    assert differences(model, content) == []
    assert differences(stage('SoftmaxLayerAttention'), content)[0].kind == 'method'


def test_checkpoints_without_a_record_are_compared_by_names_alone(tmp_path):
    model = stage('MRLABase', head_channels=16)
    save_file(model.state_dict(), tmp_path / 'a.safetensors')
    for checkpoint in (dict(state_dict=model.state_dict()), dict(model.state_dict()),
                       dict(state_dict=model.state_dict(), meta=dict(mmkcla='x')),
                       dict(state_dict=model.state_dict(), meta=None), read_checkpoint(tmp_path / 'a.safetensors')):
        assert differences(stage('SoftmaxLayerAttention', head_channels=16), checkpoint) == []


def kinds(model, checkpoint, prefix=''):
    return {one[1:] for one in differences(model, checkpoint, prefix)}


def test_a_plain_network_and_one_with_layer_attention():
    def net(attention=None):
        return nn.ModuleDict(dict(backbone=CifarLayerAttentionResNet(20, layer_attention=attention)))
    plain, kcla, mrla = net(), net(dict(type='KCLA')), net(dict(type='MRLALight'))
    for checkpoint in (saved(plain), plain.state_dict()):  # with and without a record
        assert kinds(kcla, checkpoint) == {('added', '', 'KCLA')}
        assert kinds(kcla.backbone, checkpoint, 'backbone') == {('added', '', 'KCLA')}
        assert differences(plain, checkpoint) == []
    assert message(kcla, saved(plain)) == (
        'checkpoint a.pth was made without layer attention, the config has KCLA (backbone.layer_attentions.0.0 and 5 '
        'more); use the config without KCLA or a checkpoint of KCLA')
    assert kinds(plain, saved(mrla)) == {('dropped', 'MRLALight', '')}
    assert message(plain, saved(mrla)).endswith('use the config of MRLALight or a checkpoint without layer attention')
    assert kinds(kcla, saved(mrla)) == {('method', 'MRLALight', 'KCLA')}
    assert differences(kcla, mrla.state_dict()) == [] == differences(plain, mrla.state_dict())  # names decide


def test_methods_in_other_places_are_compared_for_backbone_and_neck_each():
    def net(backbone, neck):
        return nn.ModuleDict(dict(backbone=nn.ModuleDict(backbone), neck=nn.ModuleDict(neck)))
    kcla, second = (dict(a=KCLA(16, head_channels=16)) for _ in range(2))
    for old, new, found in (
            (net(kcla, {}), net(kcla, second), {('added', '', 'KCLA')}),
            (net(kcla, {}), net(dict(b=MRLABase(16)), {}), {('method', 'KCLA', 'MRLABase')}),
            (net(kcla, {}), net(dict(kcla, b=MRLABase(16)), {}), {('added', 'KCLA', 'KCLA/MRLABase')}),
            (net(kcla, {}), net(dict(b=KCLA(16, head_channels=16)), {}), set())):
        assert kinds(new, saved(old)) == found


def test_an_attention_whose_weights_are_not_in_the_file_is_not_recorded():
    model = stage('KCLA', head_channels=16)
    assert make_record(model, ['trunk.weight'])['methods'] == {}
    assert set(methods_of(model)) == {'part.0', 'part.1'}


def test_a_backbone_started_from_another_method_is_refused(tmp_path):
    """``init_cfg=dict(type='Pretrained')`` of the backbones reads the record, too."""
    def net(attention, **init):
        return CifarLayerAttentionResNet(20, layer_attention=attention, **init)

    file = str(tmp_path / 'a.pth')
    old = net(dict(type='MRLABase', head_channels=16))
    torch.save(saved(nn.ModuleDict(dict(backbone=old))), file)
    init = dict(init_cfg=dict(type='Pretrained', checkpoint=file, prefix='backbone.'))
    fits = net(dict(type='MRLABase', head_channels=16), **init)
    fits.init_weights()
    assert all(torch.equal(value, old.state_dict()[name]) for name, value in fits.state_dict().items())
    with pytest.raises(UserError, match=r'was made with MRLABase, the config has SoftmaxLayerAttention '
                                        r'\(backbone.layer_attentions.0.0 and 5 more\)'):
        net(dict(type='SoftmaxLayerAttention', head_channels=16), **init).init_weights()
    net(dict(type='MRLABase', head_channels=8), **init).init_weights()  # other options: a start for fine-tuning
    net(None, **init)
