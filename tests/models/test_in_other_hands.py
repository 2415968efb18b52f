"""What others do with a model: mmcv's fusion of batch norms, threads, deepcopy, replicas, pickling."""
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from mmcv.cnn import fuse_conv_bn
from mmengine.model import ExponentialMovingAverage, revert_sync_batchnorm
from small_nets import two_stages as network
from torch import nn

from mmkcla.layers import LayerAttention, known_layer_attentions, layer_attention_class

METHODS = [name for name in known_layer_attentions() if layer_attention_class(name).__module__.startswith('mmkcla.')]


def test_every_method_is_here():
    assert {'KCLA', 'MRLABase', 'MRLALight', 'DLABase', 'DLALight', 'SoftmaxLayerAttention', 'LinearLayerAttention',
            'EfficientLayerAttention'} <= set(METHODS)


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_fuse_conv_bn_changes_nothing(method):
    """Folding the norm into the value convolution would skip the gate between them."""
    net = network(method).double()
    x = torch.randn(2, 3, 40, 40, dtype=torch.double)
    before = net(x)
    fused = fuse_conv_bn(copy.deepcopy(net))
    assert isinstance(fused.bn1, torch.nn.Identity)  # the trunk is fused
    for now, then in zip(fused(x), before, strict=True):
        torch.testing.assert_close(now, then, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_without_the_order_of_children_the_fusion_is_wrong(monkeypatch):
    monkeypatch.setattr(LayerAttention, 'named_children', torch.nn.Module.named_children)
    net = network('KCLA').double()
    x = torch.randn(2, 3, 40, 40, dtype=torch.double)
    assert not torch.allclose(fuse_conv_bn(copy.deepcopy(net))(x)[1], net(x)[1], atol=1e-2)


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_eight_threads_five_hundred_calls(method):
    net = network(method)
    images = torch.randn(8, 1, 3, 32, 32)
    expected = [net(image)[1] for image in images]

    @torch.no_grad()  # threads do not inherit it, and with gradients KCLA folds the norm, which rounds differently
    def run(call):
        return call % 8, net(images[call % 8])[1]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(500)))
    assert all(torch.equal(result, expected[number]) for number, result in results)
    assert not any(getattr(module, 'kept', None) for module in net.modules())


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_copies(method):
    net = network(method)
    x = torch.randn(1, 3, 32, 32)
    expected = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert all(torch.equal(*pair) for pair in zip(other(x), expected, strict=True))
        shared = {id(p) for p in other.parameters()} & {id(p) for p in net.parameters()}
        assert not shared and other.state_dict().keys() == net.state_dict().keys()
        for module in other.modules():  # a shared unit is that of the copy
            if isinstance(module, LayerAttention):
                owner = getattr(module, 'owner', None)
                assert owner is None or any(owner[0] is one for one in other.modules())


# Replicas, wrappers and types -------------------------------------------------------------------------------------

def replicated(net: nn.Module, copies: int) -> list[nn.Module]:
    """What nn.parallel.replicate does, without copying the parameters to devices."""
    modules = list(net.modules())
    replicas = [[module._replicate_for_data_parallel() for module in modules] for _ in range(copies)]
    for copy_ in replicas:
        for module, replica in zip(modules, copy_, strict=True):
            for name, child in module._modules.items():
                setattr(replica, name, None if child is None else copy_[modules.index(child)])
            for name, parameter in module._parameters.items():
                setattr(replica, name, None if parameter is None else parameter.detach().clone())
            for name, buffer in module._buffers.items():
                setattr(replica, name, None if buffer is None else buffer.clone())
    return [copy_[0] for copy_ in replicas]


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_replicas_use_their_own_modules(method):
    net = network(method)
    names = list(net.state_dict()), [name for name, _ in net.named_parameters()]
    x = torch.randn(2, 3, 32, 32)
    expected = net(x)
    replicas = replicated(net, 2)
    for parameter in net.parameters():  # a replica that still reaches the original is found out
        parameter.fill_(torch.nan)
    for replica in replicas:
        assert all(torch.equal(*pair) for pair in zip(replica(x), expected, strict=True))
    assert names == (list(net.state_dict()), [name for name, _ in net.named_parameters()])


def test_names_of_a_shared_unit():
    """One unit a stage, under its first layer."""
    names = [name for name in network('DLALight').state_dict() if name.startswith('layer_attentions.1.')]
    shared = [name for name in names if '.unit.' in name or '.excite.' in name]
    assert len(shared) == 9 and all(name.startswith('layer_attentions.1.0.') for name in shared)
    assert names.index(shared[0]) < names.index('layer_attentions.1.1.past')


@pytest.mark.parametrize('method', METHODS)
def test_ema_copy(method):
    net = network(method).train()
    ema = ExponentialMovingAverage(net, momentum=0.5)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.01)
    for step in range(2):  # the first one copies
        ema.update_parameters(net)
        assert step or all(torch.equal(*pair) for pair in zip(ema.module.parameters(), net.parameters(), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(ema.module.parameters(), before, strict=True))
    with torch.no_grad():
        x = torch.randn(1, 3, 32, 32)
        assert all(torch.equal(*pair) for pair in zip(ema.module.eval()(x), net.eval()(x), strict=True))


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_conversion_to_sync_batch_norm_and_back(method):
    net = network(method)
    x = torch.randn(2, 3, 32, 32)
    expected, norms = net(x), sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(net))
    assert sum(isinstance(module, nn.SyncBatchNorm) for module in synced.modules()) == norms
    for other in (synced, revert_sync_batchnorm(copy.deepcopy(synced))):
        assert list(other.state_dict()) == list(net.state_dict())
        for now, then in zip(other.eval()(x), expected, strict=True):
            torch.testing.assert_close(now, then)


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_channels_last(method):
    net = network(method)
    x = torch.randn(2, 3, 32, 32)
    expected = net(x)
    outs = copy.deepcopy(net).to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    for out, then in zip(outs, expected, strict=True):
        assert (out - then).norm() <= 1e-5 * then.norm()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_half_precision_in_evaluation(method, dtype):
    net = network(method)
    x = torch.randn(2, 3, 32, 32)
    expected = net(x)
    for out, then in zip(copy.deepcopy(net).to(dtype)(x.to(dtype)), expected, strict=True):
        assert out.dtype == dtype
        assert (out.float() - then).norm() <= (0.02 if dtype == torch.float16 else 0.1) * then.norm()


@pytest.mark.parametrize('method', METHODS)
@torch.no_grad()
def test_compiles_in_one_graph(method):
    net = network(method)
    compiled = torch.compile(net, fullgraph=True, backend='eager')
    for ours, theirs in zip(compiled(x := torch.randn(2, 3, 32, 32)), net(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.fixture(scope='module')
def one_process():
    """A process group of one process."""
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize('method', METHODS)
def test_distributed_data_parallel(method, one_process):
    """Three steps: DDP reports parameters without a gradient at the second."""
    plain = network(method, drop_path=0.).train()
    net = nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    for step in range(3):
        x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(step))
        for model in (plain, net):
            sum(out.square().mean() for out in model(x)).backward()
    for ours, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
