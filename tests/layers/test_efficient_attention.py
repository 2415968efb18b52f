"""Efficient Attention against numbers of the reference code and against the matrix it never forms."""
import numpy as np
import pytest
import torch
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import DotProductAttention2d, EfficientAttention

BOTH = [EfficientAttention, DotProductAttention2d]


@pytest.mark.parametrize('dtype, tolerance', [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_golden(data_dir, dtype, tolerance):
    golden = {name: torch.from_numpy(value) for name, value in
              np.load(data_dir / 'golden' / 'efficient_attention.npz').items()}
    channels, keys, heads, values = golden['args'].tolist()
    module = EfficientAttention(channels, keys, heads, values).to(dtype)
    module.load_state_dict({name.removeprefix('state/'): value for name, value in golden.items()
                            if name.startswith('state/')})
    x = golden['input'].to(dtype).requires_grad_()
    out = module(x)
    out.backward(golden['cotangent'].to(dtype))
    for ours, name in ((out, 'output'), (x.grad, 'grad_input')):
        assert (ours - golden[name].to(dtype)).abs().max() <= tolerance * golden[name].abs().max()


@pytest.mark.parametrize('heads', [1, 2, 4])
def test_scaling_form_is_dot_product_attention(heads):
    efficient = EfficientAttention(12, 8, heads, 4 * heads, 'scaling').double()
    explicit = DotProductAttention2d(12, 8, heads, 4 * heads, 'scaling').double()
    explicit.load_state_dict(efficient.state_dict())
    x = torch.randn(2, 12, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(efficient(x), explicit(x))


@pytest.mark.parametrize('normalization', ['softmax', 'scaling'])
def test_written_out_head_by_head(normalization):
    """Both modules, one head and one position at a time."""
    efficient = EfficientAttention(6, 8, 2, 4, normalization).double()
    explicit = DotProductAttention2d(6, 8, 2, 4, normalization).double()
    explicit.load_state_dict(efficient.state_dict())
    x = torch.randn(1, 6, 2, 3, dtype=torch.float64)
    keys, queries, values = (f(x)[0].flatten(1) for f in (efficient.keys, efficient.queries, efficient.values))
    n = 6
    out, matrix_out = torch.zeros(4, n, dtype=torch.float64), torch.zeros(4, n, dtype=torch.float64)
    for head in range(2):
        k, q, v = keys[head * 4:head * 4 + 4], queries[head * 4:head * 4 + 4], values[head * 2:head * 2 + 2]
        for i in range(n):
            scores = torch.stack([k[:, j] @ q[:, i] for j in range(n)])
            shares = scores.exp() / scores.exp().sum() if normalization == 'softmax' else scores / n
            matrix_out[head * 2:head * 2 + 2, i] = sum(shares[j] * v[:, j] for j in range(n))
            for channel in range(4):
                weights = k[channel].exp() / k[channel].exp().sum() if normalization == 'softmax' else k[channel] / n
                mine = q[channel, i].exp() / q[:, i].exp().sum() if normalization == 'softmax' else q[channel, i]
                out[head * 2:head * 2 + 2, i] += mine * (weights * v).sum(1)
    for module, expected in ((efficient, out), (explicit, matrix_out)):
        expected = x + module.reprojection(expected.view(1, 4, 2, 3))
        torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize('module', BOTH)
@pytest.mark.parametrize('normalization', ['softmax', 'scaling'])
def test_gradients(module, normalization):
    net = module(6, 4, 2, 6, normalization).double()
    x = torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net, x, fast_mode=True)
    net(x).square().sum().backward()
    for name, parameter in net.named_parameters():
        shift = name == 'keys.bias' and normalization == 'softmax'  # softmax is blind to a constant
        assert parameter.grad.abs().max() > 1e-9 or shift, name


@pytest.mark.parametrize('module', BOTH)
def test_zero_start_changes_nothing_then_learns(module):
    net = module(8, 4, 2, zero_init=True)
    x = torch.randn(2, 8, 5, 5)
    assert torch.equal(net(x), x)
    start = {name: value.clone() for name, value in net.named_parameters()}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    target = torch.randn_like(x)
    for _ in range(3):
        optimizer.zero_grad()
        ((net(x) - target) ** 2).sum().backward()
        optimizer.step()
    assert all(not torch.equal(value, start[name]) for name, value in net.named_parameters() if name != 'keys.bias')
    net.reset_parameters()
    assert torch.equal(net(x), x)


def test_without_residual():
    net = EfficientAttention(8, 4, residual=False)
    alone = EfficientAttention(8, 4)
    alone.load_state_dict(net.state_dict())
    x = torch.randn(1, 8, 4, 4)
    torch.testing.assert_close(alone(x), x + net(x))


@pytest.mark.parametrize('size', [(1, 1), (1, 9), (7, 4), (33, 31)])
@pytest.mark.parametrize('module', BOTH)
def test_any_size_and_batch(module, size):
    net = module(8, 4, 2)
    assert net(torch.randn(0, 8, *size)).shape == (0, 8, *size)
    x = torch.randn(3, 8, *size)
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))


@pytest.mark.parametrize('normalization', ['softmax', 'scaling'])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_half_precision_of_many_positions(normalization, dtype):
    """65,536 positions: softmax shares of 1/n are below half precision's normal numbers, sums of n values above it."""
    net = EfficientAttention(8, 8, 2, 8, normalization)
    x = torch.randn(1, 8, 256, 256) * 8
    exact = net(x)
    with torch.autocast('cpu', dtype):
        automatic = net(x.to(dtype))
    by_hand = net.to(dtype)(x.to(dtype))
    for out in (automatic, by_hand):
        assert out.isfinite().all()
        error = (out.float() - exact).norm()
        assert error <= (2e-3 if dtype == torch.float16 else 2e-2) * exact.norm()
        assert error <= (2e-2 if dtype == torch.float16 else 0.2) * (exact - x).norm()


def test_largest_tensor_is_linear_in_the_positions():
    """Counted on the meta device: 256² positions form no tensor of n×n entries."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.numel = max(self.numel, out.numel())
            return out

    sizes = {}
    for module in BOTH:
        for side in (64, 256):
            with torch.device('meta'), Largest() as largest, torch.no_grad():
                module(64, 32)(torch.empty(1, 64, side, side))
            sizes[module, side] = largest.numel
    n = 256 * 256
    assert sizes[EfficientAttention, 256] == 64 * n and sizes[EfficientAttention, 64] == 64 * n // 16
    assert sizes[DotProductAttention2d, 256] == n * n and sizes[DotProductAttention2d, 64] == n * n // 256


@pytest.mark.parametrize('module', BOTH)
def test_compiles_whole(module):
    net = module(8, 4, 2).eval()
    compiled = torch.compile(net, fullgraph=True, backend='aot_eager')
    with torch.no_grad():
        torch.testing.assert_close(compiled(x := torch.randn(2, 8, 5, 6)), net(x))


@pytest.mark.parametrize('module', BOTH)
@pytest.mark.filterwarnings('ignore')
def test_exports_to_onnx_with_any_size(module, tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), module(8, 4, 2, 8)).eval()
    batch, height, width = (torch.export.Dim(name, min=2, max=64) for name in ('batch', 'height', 'width'))
    torch.onnx.export(net, (torch.randn(2, 3, 6, 5), ), tmp_path / 'net.onnx', dynamo=True, verbose=False,
                      dynamic_shapes=({0: batch, 2: height, 3: width}, ))
    session = onnxruntime.InferenceSession(str(tmp_path / 'net.onnx'), providers=['CPUExecutionProvider'])
    for shape in ((2, 3, 6, 5), (3, 3, 9, 14)):
        x = torch.randn(shape)
        ours = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        torch.testing.assert_close(torch.from_numpy(ours), net(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('options, message', [
    (dict(key_channels=10, num_heads=4), r'EfficientAttention: key_channels=10 is not divisible by num_heads=4'),
    (dict(key_channels=8, num_heads=4, value_channels=6), 'value_channels=6 is not divisible by num_heads=4'),
    (dict(key_channels=8, num_heads=0), 'num_heads=0 must be an integer above 0'),
    (dict(key_channels=8, num_heads=True), 'num_heads=True must be an integer above 0'),
    (dict(key_channels=-2), 'key_channels=-2 must be an integer above 0'),
    (dict(key_channels=8.), 'key_channels=8.0 must be an integer above 0'),
    (dict(zero_init='no'), "zero_init='no' must be True or False"),
    (dict(key_channels=8, normalization='l2'), "normalization='l2' is unknown; choose one of: softmax, scaling"),
])
def test_bad_values_are_named(options, message):
    with pytest.raises(UserError, match=message):
        EfficientAttention(16, **options)


def test_wrong_channels_are_named():
    with pytest.raises(UserError, match='EfficientAttention expects maps with 16 channels, got 8; set in_channels'):
        EfficientAttention(16)(torch.randn(1, 8, 4, 4))
