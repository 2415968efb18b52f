"""The backbones at work: checkpointing, the shortcut, compiling, export, copies, kinds of normalisation, the golden."""
import copy
import io
import pickle

import numpy as np
import pytest
import torch
from mmpretrain.models.backbones import ResNet_CIFAR
from mmpretrain.models.backbones.resnet import Bottleneck
from small_nets import HOSTS, KCLA, equal, host_class, image, mixed, randomise_, trunk, weighted_sum
from torch import nn

from mmkcla.layers import LayerAttention
from mmkcla.models.backbones import KCLAResNet, LayerAttentionMixin
from mmkcla.weights.convert import convert_reference

SMALL = dict(depth=18, base_channels=8, stem_channels=8, out_indices=(0, 1, 2, 3), norm_eval=False)

TWO_STAGES = dict(SMALL, num_stages=2, strides=(1, 2), dilations=(1, 1), out_indices=(0, 1))


def build(library='mmpretrain', layer_attention=KCLA, name='ResNet', **options):
    return mixed(host_class(library, name))(**{**SMALL, **options}, layer_attention=layer_attention)


def step(net, seed=5):
    """One forward and backward pass in training mode: outputs, gradients, and the buffers after it."""
    torch.manual_seed(seed)
    net.train()
    x = image(40, 48).requires_grad_()
    outs = net(x)
    weighted_sum(outs).backward()
    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    return outs, {'input': x.grad, **gradients}, dict(net.named_buffers())


def assert_same_steps(*nets):
    (outs, gradients, buffers), *others = [step(net) for net in nets]
    for other_outs, other_gradients, other_buffers in others:
        assert equal(outs, other_outs)
        for name, gradient in gradients.items():
            assert torch.equal(gradient, other_gradients[name]), name
        for name, buffer in buffers.items():
            assert torch.equal(buffer, other_buffers[name]), name


# Checkpointing ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('drop_path', [0., 0.5])
@pytest.mark.parametrize(('library', 'options'), [
    ('mmdet', dict(depth=50)), ('mmseg', dict()), ('mmpretrain', dict(drop_path_rate=0.3)),
    ('mmpretrain', dict(norm_eval=True))], ids=str)
def test_checkpointing_changes_nothing(library, options, drop_path):
    """Blocks, attentions, both; running statistics are updated once."""
    attention = {**KCLA, 'drop_path': drop_path}
    net = build(library, attention, **options)
    nets = [build(library, {**attention, 'with_cp': attention_cp}, **options, with_cp=block_cp)
            for block_cp, attention_cp in ((True, False), (False, True), (True, True))]
    for other in nets:
        other.load_state_dict(net.state_dict())
        assert not any(block.with_cp for block in other._blocks())
    assert_same_steps(net, *nets)
    counts = {int(buffer) for name, buffer in nets[-1].named_buffers() if name.endswith('num_batches_tracked')}
    assert counts == ({0, 1} if options.get('norm_eval') else {1})  # the attentions' own norms train under norm_eval


def test_checkpointing_without_attention_changes_nothing():
    plain = host_class('mmdet')(**SMALL)
    ours = build('mmdet', None, with_cp=True)
    ours.load_state_dict(plain.state_dict())
    assert_same_steps(plain, ours)


def test_checkpointing_keeps_less():
    """Activations inside blocks are recomputed, not kept."""
    kept = {}
    for with_cp in (False, True):
        net, total = build(with_cp=with_cp, depth=50).train(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, total=total: total.append(t.numel()) or t, lambda t: t):
            net(image(64, 64))
        kept[with_cp] = sum(total)
    assert kept[True] < 0.6 * kept[False]


# The shortcut -----------------------------------------------------------------------------------------------------

@pytest.fixture
def recording():
    """A method that needs the shortcut, and keeps what it was given in ``seen``."""
    class Recording(LayerAttention):
        needs_shortcut = True
        seen = []

        def __init__(self, channels, carry_channels=None, carry_stride=1, norm_layer=None, with_cp=False):
            super().__init__(with_cp=with_cp)
            self.scale = nn.Parameter(torch.linspace(-1, 1, channels))

        def reset_parameters(self):
            pass

        def attend(self, x, state, shortcut):
            Recording.seen.append((x.detach(), shortcut.detach()))
            return self.scale[:, None, None] * shortcut, ()

    yield Recording
    del LayerAttention._known['Recording']


VARIANTS = [('mmdet', 'ResNet', {}), ('mmseg', 'ResNetV1d', {}), ('mmpretrain', 'ResNetV1d', dict(depth=50)),
            ('mmpretrain', 'SEResNet', dict(depth=50, se_ratio=4)),
            ('mmdet', 'ResNeXt', dict(depth=50, groups=4, base_width=2)), ('mmpretrain', 'ResNet', dict(depth=18))]


@pytest.mark.parametrize('with_cp', [False, True])
@pytest.mark.parametrize(('library', 'name', 'options'), VARIANTS, ids=str)
def test_shortcut_is_the_identity_branch(library, name, options, with_cp, recording):
    net = randomise_(build(library, dict(type='Recording'), name, **options, with_cp=with_cp))
    host = host_class(library, name)(**{**SMALL, **options})
    assert trunk(net.state_dict()) == list(host.state_dict())
    host.load_state_dict(net.state_dict(), strict=False)
    net.train()
    host.train()
    outs = net(image())
    seen, recording.seen = list(recording.seen), []
    # the host's blocks one by one, and the attention written out
    x = host.maxpool(host.stem(image()) if host.deep_stem else host.relu(host.norm1(host.conv1(image()))))
    blocks = [block for stage in host.res_layers for block in getattr(host, stage)]
    scales = [layer.scale for stage in net.layer_attentions for layer in stage]
    downsamples = 0
    for block, scale, (theirs, shortcut) in zip(blocks, scales, seen, strict=True):
        before = copy.deepcopy(block.downsample)
        out = block(x)
        identity = x if before is None else before(x)
        downsamples += before is not None
        assert torch.equal(shortcut, identity) and torch.equal(theirs, out)
        x = out + scale[:, None, None] * identity
    assert downsamples >= 3 and torch.equal(outs[-1], x)
    weighted_sum(outs).backward()
    for name, tensor in net.state_dict().items():
        if name.endswith('num_batches_tracked'):
            assert tensor == 1, name
        if not name.startswith('layer_attentions.'):
            assert torch.equal(tensor, host.state_dict()[name]), name  # statistics: updated once, as by the host
    copy.deepcopy(net)  # nothing of the step is left in it


@pytest.mark.parametrize(('library', 'name', 'options'), VARIANTS, ids=str)
def test_shortcut_under_checkpointing(library, name, options, recording):
    net, *others = [build(library, dict(type='Recording', with_cp=attention_cp), name, **options, with_cp=block_cp)
                    for block_cp, attention_cp in ((False, False), (True, False), (True, True))]
    for other in others:
        other.load_state_dict(net.state_dict())
    assert_same_steps(net, *others)


def test_gradient_reaches_the_downsample_through_the_shortcut(recording):
    """With the branch cut off everywhere else, only the attention leads to it."""
    gradients = []
    for with_cp in (False, True):
        torch.manual_seed(0)
        net = build(layer_attention=dict(type='Recording'), with_cp=with_cp, **TWO_STAGES).train()
        block = net.layer2[0]
        block.relu.register_forward_hook(lambda module, args, out: out.detach())
        x = image()
        seen = {}
        net.layer_attentions[1][0].register_forward_hook(lambda module, args, out, seen=seen: seen.update(r=out[0]))
        net(x)
        weighted_sum([seen['r']]).backward()
        gradients.append(block.downsample[0].weight.grad)
        assert gradients[-1].any() and block.conv2.weight.grad is None
    assert torch.equal(*gradients)


def test_downsample_is_left_alone_where_no_shortcut_is_needed():
    assert all(type(block.downsample) in (nn.Sequential, type(None)) for block in build()._blocks())


def test_shortcut_compiles_copies_and_exports(recording):
    net = randomise_(build(layer_attention=dict(type='Recording'), **TWO_STAGES)).eval()
    assert equal(copy.deepcopy(net)(x := image()), expected := net(x))
    recording.attend = lambda self, x, state, shortcut: (self.scale[:, None, None] * shortcut, ())
    with torch.no_grad():
        compiled = torch.compile(net, fullgraph=True, backend='aot_eager')
        for out, theirs in zip(compiled(x), expected, strict=True):
            torch.testing.assert_close(out, theirs)
        for out, theirs in zip(torch.export.export(net, (x,)).module()(x), expected, strict=True):
            torch.testing.assert_close(out, theirs)


# Compiling, exporting, copying ------------------------------------------------------------------------------------

def test_compile_once_over_steps():
    """One graph for training and one for evaluation, however many steps are made; both equal to eager mode."""
    net = randomise_(KCLAResNet(**TWO_STAGES, layer_attention=KCLA))
    other, graphs = copy.deepcopy(net), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward
    compiled = torch.compile(other, fullgraph=True, backend=backend, dynamic=False)
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3) for model in (net, other)]
    for epoch in range(2):
        for step in range(3):
            x = image(seed=10 * epoch + step)
            losses = []
            for model, optimizer in zip((net.train(), compiled.train()), optimizers, strict=True):
                optimizer.zero_grad()
                losses.append(weighted_sum(model(x)))
                losses[-1].backward()
                optimizer.step()
            torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-3)
        with torch.no_grad():
            for ours, theirs in zip(compiled.eval()(x), net.eval()(x), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert len(graphs) == 2


@pytest.mark.parametrize('with_cp', [False, True])
def test_compile_fullgraph(with_cp):
    net = randomise_(KCLAResNet(**TWO_STAGES, layer_attention={**KCLA, 'with_cp': with_cp}, with_cp=with_cp))
    other = copy.deepcopy(net)
    compiled = torch.compile(other, fullgraph=True, backend='aot_eager')
    with torch.no_grad():
        for out, theirs in zip(compiled.eval()(x := image()), net.eval()(x), strict=True):
            torch.testing.assert_close(out, theirs)
    compiled.train(), net.train()
    outs, theirs = compiled(x), net(x)
    weighted_sum(outs).backward()
    weighted_sum(theirs).backward()
    for out, reference in zip(outs, theirs, strict=True):
        torch.testing.assert_close(out, reference)
    for (name, parameter), reference in zip(other.named_parameters(), net.parameters(), strict=True):
        scale = reference.grad.abs().max()
        assert (parameter.grad - reference.grad).abs().max() <= 1e-3 * scale, name


def test_export_with_any_batch():
    net = randomise_(KCLAResNet(**SMALL, layer_attention=KCLA)).eval()
    program = torch.export.export(net, (image(batch=3),), dynamic_shapes=({0: torch.export.Dim('batch', min=2)},))
    with torch.no_grad():
        for out, theirs in zip(program.module()(x := image(batch=2)), net(x), strict=True):
            torch.testing.assert_close(out, theirs)


@pytest.mark.parametrize('how', ['deepcopy', 'pickle', 'torch.save'])
@pytest.mark.parametrize('library', HOSTS)
def test_copies(library, how):
    net = randomise_(build(library, with_cp=True))
    if how == 'deepcopy':
        other = copy.deepcopy(net)
    elif how == 'pickle':
        other = pickle.loads(pickle.dumps(KCLAResNet(**SMALL, layer_attention=KCLA)))
        other.load_state_dict(net.state_dict())
    else:
        torch.save(KCLAResNet(**SMALL, layer_attention=KCLA), buffer := io.BytesIO())
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
        other.load_state_dict(net.state_dict())
    assert equal(other.eval()(x := image()), net.eval()(x))
    with torch.no_grad():
        next(other.parameters()).zero_()
    assert next(net.parameters()).any()


# Kinds of normalisation -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('norm_cfg', 'kind'), [
    (dict(type='SyncBN', requires_grad=True), nn.SyncBatchNorm),
    (dict(type='GN', num_groups=4), nn.GroupNorm),
    (dict(type='BN', requires_grad=False, eps=1e-3), nn.BatchNorm2d),
])
@pytest.mark.parametrize('library', HOSTS)
def test_norm_cfg(library, norm_cfg, kind):
    """The attentions take the trunk's kind and its settings, but train where the trunk's weights are fixed."""
    net = build(library, norm_cfg=norm_cfg)
    norms = [module for name, module in net.layer_attentions.named_modules() if name.endswith('norm')]
    assert len(norms) == 8 + 3 and all(isinstance(norm, kind) for norm in norms)
    assert {norm.eps for norm in norms} == {norm_cfg.get('eps', 1e-5)}
    weighted_sum(net.train()(image())).backward()
    assert all(norm.weight.requires_grad and norm.weight.grad.any() for norm in norms)


def test_norm_cfg_of_the_attentions_own():
    net = build(layer_attention={**KCLA, 'norm_cfg': dict(type='GN', num_groups=2)})
    assert type(net.layer_attentions[0][0].norm) is nn.GroupNorm and type(net.layer1[0].norm1) is nn.BatchNorm2d


# The whole network of the paper's code ----------------------------------------------------------------------------

class CifarKCLA(LayerAttentionMixin, ResNet_CIFAR):
    arch_settings = {20: (Bottleneck, (2, 2, 2))}
    stem_stride = 1

    def forward_stem(self, x):
        return self.relu(self.norm1(self.conv1(x)))


class Cifar20(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = CifarKCLA(
            20, stem_channels=16, base_channels=16, num_stages=3, strides=(1, 2, 2), dilations=(1, 1, 1),
            out_indices=(2,), layer_attention=dict(type='KCLA', head_channels=16, drop_path=0.))
        self.fc = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc(self.backbone(x)[-1].mean((2, 3)))


def our_name(name):
    """Of a trunk's parameter."""
    if name.startswith('fc.'):
        return name
    if name.startswith('stages.'):
        _, stage, rest = name.split('.', 2)
        name = f'layer{int(stage) + 1}.{rest}'
    return f'backbone.{name}'


@pytest.fixture(scope='module')
def golden(data_dir):
    """The arrays, the net with their weights, and for each of its parameters the reference's name."""
    arrays = {name: torch.from_numpy(np.asarray(array)) for name, array in
              np.load(data_dir / 'golden' / 'cifar20_kcla.npz').items()}
    state = {name.removeprefix('state/'): array for name, array in arrays.items() if name.startswith('state/')}
    weights, names = {}, {}
    for name in [name for name in state if '.kcla.' not in name]:
        weights[our_name(name)], names[our_name(name)] = state[name], name
    for block in sorted({name.split('.kcla.')[0] for name in state if '.kcla.' in name}):
        prefix = block + '.kcla.'
        layer = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
        ours = 'backbone.layer_attentions.' + block.removeprefix('stages.') + '.'
        carry = 'none' if block == 'stages.0.0' else 'stage'
        for name, tensor in convert_reference(layer, 'kcla-layer', carry=carry).items():
            weights[ours + name] = tensor
        for name, tensor in layer.items():  # the same again, each by itself, to learn its name
            for new in convert_reference({name: tensor}, 'kcla-layer', carry=carry):
                names[ours + new] = prefix + name
    net = Cifar20().double()
    keys = net.load_state_dict(weights, strict=False)
    assert not keys.unexpected_keys and all(key.endswith('num_batches_tracked') for key in keys.missing_keys)
    return arrays, net, names


def close(ours, theirs, tolerance):
    return (ours.double() - theirs.double()).abs().max() <= tolerance * theirs.double().abs().max()


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_golden_eval(golden, dtype, tolerance):
    arrays, net, _ = golden
    net = copy.deepcopy(net).to(dtype).eval()
    with torch.no_grad():
        assert close(net(arrays['input'].to(dtype)), arrays['eval_logits'], tolerance)


@pytest.mark.parametrize('with_cp', [False, True])
def test_golden_training(golden, with_cp):
    arrays, net, names = golden
    net = copy.deepcopy(net).train()
    net.backbone.with_cp = with_cp
    x = arrays['input'].double().requires_grad_()
    logits = net(x)
    assert close(logits, arrays['train_logits'], 1e-6)
    (logits * arrays['cotangent']).sum().backward()
    assert close(x.grad, arrays['grad_input'], 1e-5)
    compared = 0
    for name, parameter in net.named_parameters():
        theirs = arrays.get(f'grad_norm/{names[name]}')
        if theirs is None:
            assert parameter.grad.norm() < 1e-8, name
        else:
            assert close(parameter.grad.norm(), theirs, 1e-5), name
            compared += 1
    assert compared == sum(name.startswith('grad_norm/') for name in arrays)


def test_golden_parameter_count(golden):
    _, net, _ = golden
    assert sum(parameter.numel() for parameter in net.backbone.parameters()) == 258_637 - 643 - 56 - (256 * 100 + 100)
