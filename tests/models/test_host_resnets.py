"""LayerAttentionMixin on every ResNet of the hosts: each works like the host's class, or is refused in one line."""
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from mmdet.models.backbones import DetectoRS_ResNet, HRNet, RegNet, TridentResNet
from mmdet.models.backbones import ResNet as DetResNet
from mmpretrain.models.backbones import ResNet, SEResNet
from small_nets import KCLA, SMALL, equal, image, mixed, randomise_, trunk

from mmkcla.errors import UserError
from mmkcla.layers import known_layer_attentions
from mmkcla.models.backbones import LayerAttentionResNet
from mmkcla.models.backbones.host_resnets import REFUSED

sys.path.insert(0, str(Path(__file__).parents[2] / 'tools' / 'dev'))
import host_backbones

BACKBONES = list(host_backbones.backbones())
RESNETS = [(library, kind) for library, kind in BACKBONES if host_backbones.is_resnet(library, kind)]
OTHERS = [(library, kind) for library, kind in BACKBONES if not host_backbones.is_resnet(library, kind)]
ids = lambda value: value if isinstance(value, str) else value.__name__  # noqa: E731


@cache
def committed_rows():
    text = host_backbones.PAGE.read_text(encoding='utf-8')
    lines = text.split(host_backbones.START)[1].split(host_backbones.END)[0].splitlines()
    rows = [tuple(cell.strip() for cell in line.strip('|').split('|')) for line in lines if line.startswith('| mm')]
    return {row[:2]: row[2:] for row in rows}


def test_the_table_lists_every_resnet():
    assert list(committed_rows()) == [(library, kind.__name__) for library, kind in RESNETS]
    assert len(RESNETS) >= 23


@pytest.mark.parametrize(('library', 'kind'), RESNETS, ids=ids)
def test_the_table_is_what_is_found(library, kind):
    plain, kcla = committed_rows()[library, kind.__name__]
    assert host_backbones.without_attention(library, kind) == plain
    assert host_backbones.with_attention(library, kind, dict(type='KCLA', drop_path=0.)) == kcla
    refused = kind.__name__ in REFUSED
    assert kcla.startswith('refused: ') if refused else (plain, kcla) == ('equal', 'runs')


@pytest.mark.parametrize('method', known_layer_attentions())
def test_every_method_on_the_resnets_without_a_max_pool(method):
    for library, kind in RESNETS:
        if kind.__name__ in ('RegNet', 'ResNet_CIFAR'):
            assert host_backbones.with_attention(library, kind, dict(type=method)) == 'runs'


@pytest.mark.parametrize(('library', 'kind'), OTHERS, ids=ids)
def test_other_backbones_are_refused(library, kind):
    with pytest.raises(UserError, match=f'^layer_attention does not fit {kind.__name__}: it has no ') as error:
        mixed(kind)(layer_attention=KCLA)
    assert '\n' not in str(error.value)


def test_a_forward_the_mixin_does_not_know_is_refused():
    class Halving(ResNet):
        def forward(self, x):
            return tuple(out / 2 for out in super().forward(x))

    message = 'layer_attention does not fit Halving: it would replace the forward of Halving'
    with pytest.raises(UserError, match=message):
        mixed(Halving)(**SMALL, layer_attention=KCLA)
    plain = randomise_(Halving(**SMALL))
    plain.eval()
    ours = mixed(Halving)(**SMALL, with_cp=True).eval()
    ours.load_state_dict(plain.state_dict())
    assert equal(ours(image()), plain(image()))

    class Mixed(mixed(ResNet)):  # the remedy of the message
        def forward(self, x):
            return tuple(out / 2 for out in super().forward(x))

    halved, whole = Mixed(**SMALL, layer_attention=KCLA).eval(), mixed(ResNet)(**SMALL, layer_attention=KCLA).eval()
    whole.load_state_dict(halved.state_dict())
    assert equal([2 * out for out in halved(image())], whole(image()))


def test_trident_without_attention_is_the_hosts():
    options = host_backbones.arguments('mmdet', TridentResNet)
    plain = TridentResNet(**options)
    host_backbones.randomise_(plain)
    ours = mixed(TridentResNet)(**options, with_cp=True)
    ours.load_state_dict(plain.state_dict())
    plain.eval()
    assert equal(ours.eval()(image()), plain(image()))


# DetectoRS --------------------------------------------------------------------------------------------------------

def detectors(**options):
    return mixed(DetectoRS_ResNet)(**SMALL, layer_attention=KCLA | options, output_img=True, rfp_inplanes=6)


def test_detectors_returns_the_image():
    net = detectors()
    outs = net(x := image())
    assert torch.equal(outs[0], x) and len(outs) == 5
    assert net.out_channels[0] == 3 and net.out_strides[:2] == (1, 4)


@pytest.mark.parametrize('method', ['KCLA', 'DLALight'])
@torch.no_grad()
def test_the_recursive_pyramid_applies_the_attention(method):
    """Without feedback through rfp_conv, rfp_forward is forward."""
    net = randomise_(detectors(type=method)).eval()
    for name, parameter in net.named_parameters():
        if 'rfp_conv' in name:
            parameter.zero_()
    outs = net(x := image())[1:]
    feedback = [torch.randn(2, 6, *out.shape[2:]) for out in outs]
    assert equal(net.rfp_forward(x, feedback), outs)
    net.layer2[0].rfp_conv.bias += 1
    assert not equal(net.rfp_forward(x, feedback), outs)
    plain = mixed(DetectoRS_ResNet)(**SMALL, output_img=True, rfp_inplanes=6).eval()
    plain.load_state_dict({name: net.state_dict()[name] for name in trunk(net.state_dict())})
    host = DetectoRS_ResNet(**SMALL, output_img=True, rfp_inplanes=6)
    host.eval()
    host.load_state_dict(plain.state_dict())
    assert equal(plain.rfp_forward(x, feedback), host.rfp_forward(x, feedback))


def test_detectors_keeps_loaded_attention_weights(tmp_path):
    net = randomise_(detectors())
    torch.save(net.state_dict(), tmp_path / 'net.pth')
    other = mixed(DetectoRS_ResNet)(**SMALL, layer_attention=KCLA, rfp_inplanes=6,
                                    init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'net.pth')))
    other.init_weights()
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in net.state_dict().items())
    assert other.pretrained == str(tmp_path / 'net.pth')


# Weights of a plain ResNet ----------------------------------------------------------------------------------------

def save_plain(path, kind=ResNet, **options):
    net = randomise_(kind(**SMALL | options))
    torch.save(net.state_dict(), path)
    return dict(type='Pretrained', checkpoint=str(path)), net.state_dict()


def test_plain_weights_load_into_a_se_resnet(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr('mmkcla.models.backbones.layer_attention_mixin.print_log', lambda line, **_: lines.append(line))
    init_cfg, weights = save_plain(tmp_path / 'plain.pth')
    net = mixed(SEResNet)(**SMALL, se_ratio=4, layer_attention=KCLA, init_cfg=init_cfg)
    net.init_weights()
    assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in weights.items())
    missing = [name for name in trunk(net.state_dict()) if name not in weights]
    assert len(missing) == 64 and all('.se_layer.' in name for name in missing)  # two convolutions in 16 blocks
    assert any(f'{len(missing)} entries of the blocks (se_layer.conv1.conv, se_layer.conv2.conv) are missing' in line
               for line in lines)
    host = SEResNet(**SMALL, se_ratio=4, init_cfg=init_cfg)
    host.init_weights()
    assert all(torch.equal(host.state_dict()[name], net.state_dict()[name]) for name in weights)


@pytest.mark.parametrize(('kind', 'saved', 'options'), [
    (ResNet, dict(depth=50), dict(depth=101)),
    (ResNet, dict(), dict(deep_stem=True)),
    (ResNet, dict(depth=18), dict(depth=50)),
    (SEResNet, dict(deep_stem=True), dict(se_ratio=4)),
])
def test_weights_of_another_structure_are_refused(kind, saved, options, tmp_path):
    init_cfg, _ = save_plain(tmp_path / 'plain.pth', **saved)
    net = mixed(kind)(**SMALL | options, layer_attention=KCLA, init_cfg=init_cfg)
    with pytest.raises(UserError, match='does not fit'):
        net.init_weights()


# Default head widths ----------------------------------------------------------------------------------------------

def test_default_head_width_gives_way_and_a_set_one_does_not(monkeypatch):
    lines = []
    monkeypatch.setattr('mmkcla.models.head_widths.print_log', lambda line, **_: lines.append(line))
    arch = dict(w0=24, wa=36.44, wm=2.49, group_w=8, depth=13, bot_mul=1.)  # RegNetX-800MF is 64, 128, 288, 672 wide
    options = dict(arch=dict(arch, w0=56, wa=35.73, wm=2.28, group_w=16, depth=16), out_indices=(0, 1, 2, 3))
    net = mixed(RegNet)(**options, layer_attention=dict(type='KCLA'))
    widths = [(stage[0].head_channels * stage[0].num_heads, stage[0].head_channels) for stage in net.layer_attentions]
    assert widths == [(64, 64), (128, 64), (288, 72), (672, 56)]
    # the carries' groups: heads divide the previous stage's channels, too
    assert all(before % (now // width) == 0 for (before, _), (now, width) in zip(widths, widths[1:], strict=False))
    assert lines == ['LayerAttentionRegNet: head_channels=64 of KCLA does not divide all channels; the heads have '
                     '72, 56 channels there']
    with pytest.raises(UserError, match='288 channels are not divisible by head_channels=64'):
        mixed(RegNet)(**options, layer_attention=dict(type='KCLA', head_channels=64))
    assert all(layer.head_channels == 64 for stage in LayerAttentionResNet(
        18, layer_attention=dict(type='KCLA')).layer_attentions for layer in stage)


def test_hrnet_lacks_what_a_resnet_has():
    with pytest.raises(UserError, match='HRNet: it has no make_res_layer'):
        mixed(HRNet)({}, layer_attention=KCLA)
    assert hasattr(DetResNet, 'make_res_layer')
