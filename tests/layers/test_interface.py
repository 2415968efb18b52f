"""What LayerAttention promises to whoever writes or configures a method."""
import inspect

import pytest
import torch
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import KCLA, LayerAttention, known_layer_attentions, layer_attention_class
from mmkcla.layers.base import SET_BY_NETWORK
from mmkcla.layers.cache import Cache
from mmkcla.layers.dla import DLABaseState, UnitState
from mmkcla.layers.kcla import KCLAState
from mmkcla.models.backbones import LayerAttentionResNet
from mmkcla.models.backbones.cifar_resnet import CifarLayerAttentionResNet
from mmkcla.models.necks import LayerAttentionNeck

COMMON = dict(drop_path=0.2, layer_scale_init=None, with_cp=False, norm_layer=nn.BatchNorm2d)
NAMES = known_layer_attentions()


@pytest.fixture
def known():
    """Restore the known names after a test that defines classes."""
    before = dict(LayerAttention._known)
    yield LayerAttention._known
    LayerAttention._known.clear()
    LayerAttention._known.update(before)


# Options ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('name', 'own'), [
    ('KCLA', dict(carry_blocks=(), head_channels=64, temperature='fixed', temperature_range=(0.7, 1 / 0.7),
                  dynamic_value=True, head_mixing=True, relu=True, gate_key='current', scale_by_width=False,
                  carry_bias=False, share_carry_key=False, fused=True)),
    ('SoftmaxLayerAttention', dict(head_channels=16, literal=False)), ('LinearLayerAttention', dict(head_channels=16)),
    ('MRLABase', dict(head_channels=32)), ('MRLALight', dict(head_channels=32)),
    ('DLABase', dict(head_channels=32, reduction=16)), ('DLALight', dict(head_channels=32, reduction=16)),
    ('EfficientLayerAttention', dict(key_channels=None, num_heads=1, value_channels=None, normalization='softmax',
                                     zero_init=False))])
def test_options_and_defaults(name, own) -> None:
    assert layer_attention_class(name).options() == own | COMMON


@pytest.mark.parametrize('name', NAMES)
def test_options_are_taken(name) -> None:
    method = layer_attention_class(name)
    assert len(method.build_stage(64, 2, **method.options())) == 2
    with pytest.raises(TypeError, match='nonsense'):
        method.build_stage(64, 2, nonsense=1)


def test_options_end_where_a_constructor_passes_none_on(known) -> None:
    class Closed(KCLA):
        def __init__(self, channels, width, *rest, drop_path=0.5):
            super().__init__(channels, head_channels=width, drop_path=drop_path)

    assert Closed.options() == dict(carry_blocks=(), width=inspect.Parameter.empty, drop_path=0.5)
    assert not set(SET_BY_NETWORK) & set(Closed.options())


def test_unknown_option_lists_the_known_ones(known) -> None:
    for make in (lambda **options: LayerAttentionResNet(18, layer_attention=dict(type='MRLABase', **options)),
                 lambda **options: LayerAttentionNeck(32, 2, dict(type='MRLABase', **options))):
        with pytest.raises(UserError) as error:
            make(head_channel=16)
        assert str(error.value) == (
            "layer_attention MRLABase does not take 'head_channel'; its options are head_channels, drop_path, "
            "layer_scale_init, with_cp, norm_cfg (see mmkcla.layers.mrla.MRLABase) (did you mean 'head_channels'?)")

    class Bare(LayerAttention):
        def __init__(self, channels):
            super().__init__()

    with pytest.raises(UserError, match=r'Bare does not take norm_layer, which every network sets: let .*Bare.__init__ '
                                        r'take \*\*options and pass them to LayerAttention.__init__'):
        LayerAttentionResNet(18, layer_attention=dict(type='Bare'))


def test_common_options_are_checked_by_the_base() -> None:
    for name in NAMES:
        with pytest.raises(UserError, match=r'drop_path=1.5 is not a probability'):
            layer_attention_class(name)(64, drop_path=1.5)
        with pytest.raises(UserError, match="layer_scale_init='0' is not a number"):
            layer_attention_class(name)(64, layer_scale_init='0')


def test_cifar_options() -> None:
    expected = {name: {} if name == 'EfficientLayerAttention' else dict(head_channels=16) for name in NAMES}
    expected |= {name: dict(head_channels=16, reduction=4) for name in ('DLABase', 'DLALight')}
    assert {name: layer_attention_class(name).cifar_options for name in NAMES} == expected
    assert LayerAttention.cifar_options == {}


def test_a_method_without_heads_in_a_cifar_resnet(known) -> None:
    class Plain(LayerAttention):
        def __init__(self, channels, **options):
            super().__init__(**options)
            self.build_output(channels)

        def attend(self, x, state, shortcut=None):
            return self.output(x), ()

    net = CifarLayerAttentionResNet(20, layer_attention=dict(type='Plain', layer_scale_init=0.))
    net.init_weights()
    plain = CifarLayerAttentionResNet(20)
    plain.load_state_dict(net.state_dict(), strict=False)
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(net(x)[0], plain(x)[0])


# Names --------------------------------------------------------------------------------------------------------------

def define(name, module='user', qualname=None):
    return type(LayerAttention)(name, (LayerAttention, ), dict(__module__=module, __qualname__=qualname or name))


def test_a_known_name_is_not_replaced(known) -> None:
    with pytest.raises(UserError, match=r"^class user.KCLA: the name 'KCLA' is already used by mmkcla.layers.kcla.KCLA"
                                        r', and configs find layer attentions by name; choose another name$'):
        define('KCLA')
    assert layer_attention_class('KCLA') is KCLA
    define('Mine')
    with pytest.raises(UserError, match="class other.Mine: the name 'Mine' is already used by user.Mine"):
        define('Mine', 'other')
    with pytest.raises(UserError, match=r"class user.f.<locals>.Mine: the name 'Mine' is already used by user.Mine"):
        define('Mine', qualname='f.<locals>.Mine')


def test_the_same_class_replaces_itself(known) -> None:
    define('Mine')
    again = define('Mine')
    assert layer_attention_class('Mine') is again


def test_private_names_are_not_known(known) -> None:
    define('_Mine')
    assert '_Mine' not in known_layer_attentions()


# States -------------------------------------------------------------------------------------------------------------

def test_states_pack_and_unpack() -> None:
    a, b, c, d, e, f = torch.arange(6).split(1)
    cache = Cache().append(a, b).append(c, d)
    assert cache == Cache((a, c), (b, d)) and cache.pack() == (a, b, c, d) and Cache.unpack(cache.pack()) == cache
    both = DLABaseState(UnitState(e, f), cache)
    assert both.pack() == (e, f, a, b, c, d) and DLABaseState.unpack(both.pack()) == both
    assert DLABaseState.unpack((e, f)) == DLABaseState(UnitState(e, f), Cache())
    assert KCLAState(a, b).pack() == (a, b) and KCLAState.unpack((a, b)).key_sum is None
    assert KCLAState(a, b, c).pack() == (a, b, c) and KCLAState.unpack((a, b, c)) == KCLAState(a, b, c)


@pytest.mark.parametrize('name', NAMES)
def test_a_state_is_a_plain_tuple(name) -> None:
    layers = layer_attention_class(name).build_stage(64, 2)
    state = None
    for layer in layers:
        x = torch.randn(2, 64, 4, 4)
        _, state = layer(x, state, x)
        assert type(state) is tuple and all(isinstance(entry, torch.Tensor) for entry in state)
