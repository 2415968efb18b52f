"""Necks: shapes kept, values as written out, nothing changed at step 0, everything learns."""
import copy

import pytest
import torch
import torch.nn.functional as F
from mmdet.models.necks import FPN
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import DefaultScope
from small_nets import equal, randomise_
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import KCLA, known_layer_attentions
from mmkcla.models.necks import KCLAFPN, CrossLevelAttention, EfficientAttentionNeck, LayerAttentionNeck

SIZES = ((20, 28), (10, 14), (5, 7), (3, 4))
ODD = ((33, 47), (16, 25), (9, 11), (4, 7))
DIRECTIONS = ('coarse_to_fine', 'fine_to_coarse', 'both')
METHODS = known_layer_attentions()


def options_of(method, **options):
    heads = {} if method == 'EfficientLayerAttention' else dict(head_channels=8)
    return dict(type=method, **heads, **options)


def levels(channels=16, sizes=SIZES, batch=2, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(batch, channels, *size, generator=generator, dtype=torch.float64).to(dtype)
                 for size in sizes)


def neck_of(method='KCLA', scale=1., **options):
    neck = LayerAttentionNeck(16, 4, options_of(method, layer_scale_init=scale), **options)
    neck.init_weights()
    return neck


# LayerAttentionNeck ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('direction', DIRECTIONS)
@pytest.mark.parametrize('method', METHODS)
def test_every_method_keeps_shapes_and_lets_everything_learn(method, direction):
    neck = neck_of(method, direction=direction)
    inputs = levels(sizes=ODD)
    outs = neck(inputs)
    assert isinstance(outs, tuple) and [out.shape for out in outs] == [x.shape for x in inputs]
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    for name, parameter in neck.named_parameters():
        assert parameter.grad is not None, name  # DistributedDataParallel wants one for each
    learning = sum(parameter.grad.abs().max() > 1e-7 for parameter in neck.parameters())
    # a first layer's query or key that cannot matter yet, and a bias that a softmax does not see
    assert learning >= len(list(neck.parameters())) - 4 * len(neck.passes)


@pytest.mark.parametrize('direction', DIRECTIONS)
@pytest.mark.parametrize('method', METHODS)
def test_starts_as_if_it_were_not_there_then_learns(method, direction):
    neck = LayerAttentionNeck([16] * 4, layer_attention=options_of(method), direction=direction)
    inputs = levels()
    assert equal(neck(inputs), inputs)
    optimizer = torch.optim.SGD(neck.parameters(), lr=0.1)
    start = copy.deepcopy(dict(neck.named_parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        sum((out * x.roll(1, 3)).sum() for out, x in zip(neck(inputs), inputs, strict=True)).backward()
        optimizer.step()
    changed = sum(not torch.equal(value, start[name]) for name, value in neck.named_parameters())
    assert changed >= len(start) - 4 * len(neck.passes) and changed > 0
    assert all(not torch.equal(value, start[name]) for name, value in neck.named_parameters() if 'scale' in name)


def test_kcla_from_coarse_to_fine_written_out():
    """Shares over levels are a softmax of the key lengths; coarser maps are repeated."""
    neck = randomise_(neck_of(carry='keep')).double().eval()
    inputs = levels(sizes=((16, 24), (8, 12), (4, 6), (2, 3)), dtype=torch.float64)
    layers = neck.passes[0].layers
    lengths, outs = [], []
    for t, layer in enumerate(layers):
        seen = inputs[::-1][:t + 1]
        key = layer.key(seen[-1].mean((2, 3))).unflatten(1, (2, 8))
        query = layer.query(seen[-1].mean((2, 3))).unflatten(1, (2, 8))
        lengths.append((layer.log_temperature.exp() * key.norm(dim=-1)).clamp(max=10))
        shares = torch.stack(lengths).softmax(0).repeat_interleave(8, -1)[..., None, None]
        maps = [x.repeat_interleave(2 ** (t - i), 2).repeat_interleave(2 ** (t - i), 3) for i, x in enumerate(seen)]
        total = torch.stack(lengths).exp().sum(0)
        gate = torch.sigmoid(((query * key).sum(-1) / key.norm(dim=-1)) @ layer.head_mixing.weight.T)
        gate = (gate * total / (total + 1e-3)).repeat_interleave(8, -1)[..., None, None]
        value = layer.value(sum(share * x for share, x in zip(shares, maps, strict=True)))
        outs.append(seen[-1] + layer.layer_scale[:, None, None] * layer.norm(gate * value).relu())
    for ours, expected in zip(neck(inputs), outs[::-1], strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize('sizes', [SIZES, ((33, 47), (17, 24), (9, 12), (5, 6))])
def test_token_carry_from_fine_to_coarse_is_algorithm_1(sizes):
    """Each level a stage of one layer, as a backbone would run it, with convolutions of stride 2 between them."""
    neck = randomise_(neck_of(direction='fine_to_coarse', carry='token')).double().eval()
    inputs = levels(sizes=sizes, dtype=torch.float64)
    stages = [KCLA.build_stage(16, 1, None if i == 0 else 16, 2, head_channels=8, layer_scale_init=1.)[0]
              for i in range(4)]
    chain = nn.ModuleList(stages).double().eval()
    chain.load_state_dict(neck.passes[0].layers.state_dict())
    state = None
    for layer, x, out in zip(chain, inputs, neck(inputs), strict=True):
        retrieved, state = layer(x, state)
        assert torch.equal(out, x + retrieved)


def test_token_carry_from_coarse_to_fine_upsamples():
    neck = randomise_(neck_of(carry='token')).double().eval()
    coarse, fine = levels(sizes=((4, 6), (8, 12)), dtype=torch.float64)
    first, second = neck.passes[0].layers[:2]
    _, (mean, _) = first(coarse, None)
    retrieved, _ = second(fine, (mean.repeat_interleave(2, 2).repeat_interleave(2, 3), torch.zeros(2, 2)))
    r, state = neck.passes[0].step(0, coarse, None, None)
    ours, _ = neck.passes[0].step(1, fine, state, coarse + r)
    torch.testing.assert_close(ours, retrieved)
    assert isinstance(second.carry.conv, nn.Identity)


@pytest.mark.parametrize('carry', ['keep', 'token'])
@pytest.mark.parametrize('direction', DIRECTIONS)
def test_any_sizes(direction, carry):
    neck = neck_of(direction=direction, carry=carry)
    for sizes in (SIZES, ODD, ((7, 3), (50, 1), (2, 2), (1, 1)), ((8, 8), ) * 4):
        assert [out.shape[2:] for out in neck(levels(sizes=sizes))] == [torch.Size(size) for size in sizes]
    neck.eval()
    assert [out.shape[0] for out in neck(levels(batch=0))] == [0] * 4


def test_the_past_of_mrla_light_is_the_level_before():
    neck = randomise_(neck_of('MRLALight')).eval()
    inputs = levels(sizes=((16, 24), (8, 12), (4, 6), (2, 3)))
    layers = neck.passes[0].layers
    out = None
    for layer, x, ours in zip(layers, inputs[::-1], neck(inputs)[::-1], strict=True):
        past = torch.zeros_like(x) if out is None else F.interpolate(out, x.shape[2:])
        out = x + layer(x, None, past)[0]
        torch.testing.assert_close(ours, out)


def test_both_runs_up_over_what_ran_down():
    neck = randomise_(neck_of(direction='both')).eval()
    inputs = levels()
    down, up = neck.passes
    assert equal(neck(inputs), up(down(inputs[::-1])[::-1]))
    assert not down.shrinks and up.shrinks


def test_samples_do_not_see_each_other():
    neck = randomise_(neck_of('DLALight', direction='both')).eval()
    inputs = levels(batch=3)
    for whole, alone in zip(neck(inputs), neck([x[1:2] for x in inputs]), strict=True):
        torch.testing.assert_close(whole[1:2], alone)


def test_half_precision_and_compile():
    neck = randomise_(neck_of(direction='both')).eval()
    inputs = levels()
    with torch.no_grad():
        exact = neck(inputs)
        with torch.autocast('cpu', torch.bfloat16):
            rough = neck([x.bfloat16() for x in inputs])
        for ours, theirs in zip(rough, exact, strict=True):
            assert (ours.float() - theirs).norm() <= 2e-2 * theirs.norm()
        compiled = torch.compile(neck, fullgraph=True, backend='aot_eager')(inputs)
        for ours, theirs in zip(compiled, exact, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize('make, message', [
    (lambda: LayerAttentionNeck([16, 32]), r'in_channels=\[16, 32\] must be equal'),
    (lambda: LayerAttentionNeck([16, 16], num_levels=3), 'num_levels=3, but in_channels has 2 entries'),
    (lambda: LayerAttentionNeck(16, 1), 'needs at least two levels, got 1'),
    (lambda: LayerAttentionNeck([16]), 'needs at least two levels, got 1'),
    (lambda: LayerAttentionNeck('16'), "in_channels='16' must be a number of channels"),
    (lambda: LayerAttentionNeck(None), 'in_channels=None must be a number of channels'),
    (lambda: LayerAttentionNeck(16., 2), 'in_channels=16.0 must be a number of channels'),
    (lambda: LayerAttentionNeck(16, 2, dict(type='KCLA', carry_channels=16)), 'carry_channels is set by the neck'),
    (lambda: LayerAttentionNeck(64, 2, norm_cfg='GN'), "norm_cfg='GN' must be a dict with a type"),
    (lambda: LayerAttentionNeck(64, 2, norm_cfg=None), 'norm_cfg=None must be a dict with a type'),
    (lambda: LayerAttentionNeck(64, 2, norm_cfg=dict(type='GN')), 'for 64 channels; GN needs num_groups'),
    (lambda: LayerAttentionNeck(64, 2, norm_cfg=dict(type='Nope')), 'cannot be built for 64 channels'),
    (lambda: LayerAttentionNeck(64, 2, direction=['both']), 'is unknown; choose one of: coarse_to_fine'),
    (lambda: KCLAFPN([8, 16], 64, 2, attention_norm_cfg='GN'), "norm_cfg='GN' must be a dict with a type"),
    (lambda: EfficientAttentionNeck(16, 4, levels=1), 'levels=1 must be distinct indices of 4 levels'),
    (lambda: EfficientAttentionNeck(16, 4, levels=[True]), 'must be distinct indices of 4 levels'),
    (lambda: EfficientAttentionNeck(16, '5'), "num_levels='5' must be a number of levels"),
    (lambda: EfficientAttentionNeck(16, -1), 'num_levels=-1 must be a number of levels'),
    (lambda: EfficientAttentionNeck(16, 4, attention=dict(type='x')), 'unknown; choose one of: EfficientAttention, '),
    (lambda: LayerAttentionNeck(16, direction='up'), "direction='up' is unknown; choose one of: coarse_to_fine, "),
    (lambda: LayerAttentionNeck(16, carry='add'), "carry='add' is unknown; choose one of: keep, token"),
    (lambda: LayerAttentionNeck(16, layer_attention=dict(head_channels=64)),
     '16 channels are not divisible by head_channels=64'),
    (lambda: LayerAttentionNeck(16, 2, dict(type='MRLABase', head_channels=8), carry='token'),
     "carry='token' needs a method with a carry between stages"),
    (lambda: LayerAttentionNeck(16, 2, dict(type='KCLA', heads=8)), "KCLA does not take 'heads'"),
    (lambda: LayerAttentionNeck(16, 2, 'KCLA'), "layer_attention='KCLA' must be a dict"),
    (lambda: LayerAttentionNeck(16, 2, dict(type='KLCA')), "did you mean 'KCLA'"),
    (lambda: neck_of()(levels()[:3]), 'was built for 4 levels of 16, 16, 16, 16 channels, got 3 levels of 16, 16, 16'),
    (lambda: neck_of()(levels(channels=8)), 'got 4 levels of 8, 8, 8, 8 channels; set num_levels and in_channels'),
    (lambda: neck_of()(levels()[0]), 'got a single map'),
    (lambda: EfficientAttentionNeck([16, 32], levels=(0, 2)), r'levels=\(0, 2\) must be distinct indices of 2 levels'),
    (lambda: EfficientAttentionNeck(16, 4, levels=()), 'must be distinct indices of 4 levels'),
    (lambda: EfficientAttentionNeck([16, 18], num_heads=2), 'key_channels=9 is not divisible by num_heads=2'),
    (lambda: EfficientAttentionNeck(16, 4)(levels()[:2]), 'EfficientAttentionNeck was built for 4 levels'),
    (lambda: KCLAFPN([8, 16], 64, 2)(levels()[:1]), 'but the backbone returns 1 maps; check its out_indices'),
    (lambda: KCLAFPN([8], 64, 1), 'needs at least two levels, got 1'),
    (lambda: KCLAFPN([8, 16], 60, 2, layer_attention=dict(head_channels=64)),
     '60 channels are not divisible by head_channels=64'),
])
def test_invalid_values_are_reported(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_a_single_cell_is_refused_in_training_by_name():
    neck = neck_of()
    tiny = levels(sizes=((8, 8), (4, 4), (2, 2), (1, 1)), batch=1)
    with pytest.raises(UserError, match=r'a batch norm cannot train on a single 1×1 map \(got \(1, 16, 1, 1\)\)'):
        neck(tiny)
    LayerAttentionNeck(16, 4, options_of('KCLA'), norm_cfg=dict(type='GN', num_groups=4))(tiny)
    neck.eval()(tiny)


# EfficientAttentionNeck -----------------------------------------------------------------------------------------------

def test_efficient_attention_on_chosen_levels():
    neck = EfficientAttentionNeck([8, 16, 32, 64], levels=(1, 3), num_heads=2)
    inputs = tuple(torch.randn(2, c, *size) for c, size in zip((8, 16, 32, 64), ODD, strict=True))
    assert equal(neck(inputs), inputs)
    for attention in neck.attentions.values():
        nn.init.normal_(attention.reprojection.weight)
    outs = neck(inputs)
    assert [torch.equal(out, x) for out, x in zip(outs, inputs, strict=True)] == [True, False, True, False]
    assert torch.equal(outs[3], neck.attentions['3'](inputs[3])) and neck.attentions['3'].keys.out_channels == 32
    assert len(EfficientAttentionNeck(16).attentions) == 5


# KCLAFPN --------------------------------------------------------------------------------------------------------------

FPN_OPTIONS = [
    dict(num_outs=5), dict(num_outs=4), dict(num_outs=6), dict(num_outs=3, start_level=1),
    dict(num_outs=5, start_level=1, add_extra_convs='on_output', relu_before_extra_convs=True),
    dict(num_outs=6, start_level=1, add_extra_convs='on_input'), dict(num_outs=5, add_extra_convs=True),
    dict(num_outs=6, add_extra_convs='on_lateral'), dict(num_outs=2, start_level=1, end_level=2),
    dict(num_outs=4, norm_cfg=dict(type='BN'), no_norm_on_lateral=True, act_cfg=dict(type='ReLU')),
    dict(num_outs=4, upsample_cfg=dict(mode='bilinear', align_corners=False)),
    dict(num_outs=4, upsample_cfg=dict(mode='nearest', scale_factor=2)),
]
WIDTHS = [8, 16, 32, 64]


def pyramid(sizes=ODD, dtype=torch.float32):
    return tuple(torch.randn(2, c, *size, dtype=dtype) for c, size in zip(WIDTHS, sizes, strict=True))


@pytest.mark.parametrize('options', FPN_OPTIONS, ids=str)
def test_kclafpn_starts_as_the_hosts_fpn(options):
    inputs = pyramid(((32, 48), (16, 24), (8, 12), (4, 6)) if 'scale_factor' in str(options) else ODD)
    plain = FPN(WIDTHS, 16, **options)
    plain.init_weights()
    ours = KCLAFPN(WIDTHS, 16, layer_attention=dict(head_channels=8), **options)
    missing, unexpected = ours.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected and all(name.startswith('top_down.') for name in missing)
    assert equal(ours(inputs), plain(inputs))


@pytest.mark.parametrize('method', METHODS)
def test_kclafpn_learns_with_every_method(method):
    fpn = KCLAFPN(WIDTHS, 16, 5, layer_attention=options_of(method, layer_scale_init=0.5))
    fpn.init_weights()
    outs = fpn(pyramid())
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    for name, parameter in fpn.named_parameters():
        assert parameter.grad is not None, name


def test_kclafpn_written_out():
    """P_i = L_i + (1 − s) up(P_{i+1}) + s O_i, the mean over laterals resampled from level to level."""
    fpn = randomise_(KCLAFPN(WIDTHS, 16, 4, layer_attention=dict(head_channels=8))).double().eval()
    layers = fpn.top_down.layers
    scales = [torch.rand(16, dtype=torch.float64) for _ in layers]
    with torch.no_grad():
        for layer, scale in zip(layers, scales, strict=True):
            layer.layer_scale.copy_(scale)
    inputs = pyramid(dtype=torch.float64)
    laterals = [conv(x) for conv, x in zip(fpn.lateral_convs, inputs, strict=True)]
    state, path, paths = None, None, []
    for layer, scale, lateral in zip(layers, scales, laterals[::-1], strict=True):
        if state is not None:
            state = (F.interpolate(state[0], lateral.shape[2:]), state[1])
        unscaled = copy.deepcopy(layer)
        nn.init.ones_(unscaled.layer_scale)
        retrieved, state = unscaled(lateral, state)
        scale = scale[:, None, None]
        above = 0 if path is None else (1 - scale) * F.interpolate(path, lateral.shape[2:])
        path = lateral + above + scale * retrieved
        paths.append(path)
    for out, conv, expected in zip(fpn(inputs), fpn.fpn_convs, paths[::-1], strict=True):
        torch.testing.assert_close(out, conv(expected))


def test_kclafpn_without_a_scale_is_the_recurrence_alone():
    fpn = KCLAFPN(WIDTHS, 16, 4, layer_attention=dict(head_channels=8, layer_scale_init=None)).eval()
    ones = KCLAFPN(WIDTHS, 16, 4, layer_attention=dict(head_channels=8, layer_scale_init=1.)).eval()
    ones.load_state_dict(fpn.state_dict(), strict=False)
    for ours, theirs in zip(fpn(inputs := pyramid()), ones(inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


# In a config ----------------------------------------------------------------------------------------------------------

def test_necks_follow_an_fpn_in_a_list():
    with DefaultScope.overwrite_default_scope('mmdet'):
        neck = ROOT_MODELS.build([
            dict(type='FPN', in_channels=WIDTHS, out_channels=16, num_outs=5),
            dict(type='mmkcla.LayerAttentionNeck', in_channels=16, layer_attention=dict(type='KCLA', head_channels=8)),
            dict(type='mmkcla.EfficientAttentionNeck', in_channels=16, levels=(2, 3, 4), num_heads=2)])
        plain = ROOT_MODELS.build(dict(type='FPN', in_channels=WIDTHS, out_channels=16, num_outs=5))
    plain.load_state_dict(neck[0].state_dict())
    assert isinstance(neck[1], LayerAttentionNeck) and isinstance(neck[1].passes[0], CrossLevelAttention)
    assert equal(neck(inputs := pyramid()), plain(inputs))


@pytest.mark.parametrize('mode', [True, False], ids=['train', 'eval'])
@pytest.mark.parametrize('make', [
    lambda: LayerAttentionNeck(16, 3, dict(type='KCLA', head_channels=8), direction='both'),
    lambda: EfficientAttentionNeck(16, 3),
    lambda: KCLAFPN([16] * 3, 16, 3, layer_attention=dict(type='KCLA', head_channels=8))], ids=['levels', 'ea', 'fpn'])
def test_empty_batch(make, mode):
    neck = make().train(mode)
    outs = neck([torch.randn(0, 16, side, side) for side in (16, 8, 4)])
    assert [tuple(out.shape) for out in outs] == [(0, 16, 16, 16), (0, 16, 8, 8), (0, 16, 4, 4)]
    assert all(entry.isfinite().all() for entry in neck.state_dict().values())
