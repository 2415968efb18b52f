"""The options of KCLA that only the ablations use."""
import pytest
import torch

from mmkcla.layers import KCLA


def test_without_dynamic_value_the_mean_is_over_the_values():
    """Each layer projects its own map once; the mean of the values, times z/(z + 1e-3), is gated."""
    torch.manual_seed(0)
    layers = KCLA.build_stage(32, 3, head_channels=8, drop_path=0., dynamic_value=False).double().eval()
    xs = [torch.randn(2, 32, 5, 4, dtype=torch.float64) + 0.3 for _ in layers]
    state, values, lengths = None, [], []
    for layer, x in zip(layers, xs, strict=True):
        pooled = x.mean((2, 3))
        key, query = (module(pooled).unflatten(1, (4, 8)) for module in (layer.key, layer.query))
        values.append(layer.value(x))
        lengths.append((layer.log_temperature.exp() * key.norm(dim=-1)).clamp(max=10))
        weights = torch.stack(lengths).exp()
        spread = lambda scores: scores.repeat_interleave(8, -1)[..., None, None]  # noqa: E731
        mean = (spread(weights) * torch.stack(values)).sum(0) / spread(weights.sum(0) + 1e-3)
        gate = torch.sigmoid(((query * key).sum(-1) / key.norm(dim=-1)) @ layer.head_mixing.weight.T)
        retrieved, state = layer(x, state)
        torch.testing.assert_close(retrieved, layer.norm(spread(gate) * mean).relu())
    assert state[0].shape == xs[0].shape and len(state) == 2


def test_both_forms_are_the_same_layer_where_it_is_alone():
    """f_V is linear and per channel, the first layer's share is 1: the order of mean and f_V does not matter there."""
    torch.manual_seed(1)
    dynamic, own = KCLA(32, 8, drop_path=0.), KCLA(32, 8, drop_path=0., dynamic_value=False)
    own.load_state_dict(dynamic.state_dict())
    x = torch.randn(2, 32, 6, 6)
    torch.testing.assert_close(own(x)[0], dynamic(x)[0])


def test_no_temperature_is_one_everywhere():
    assert KCLA(64, 16, temperature_range=(1., 1.)).log_temperature.tolist() == [0.] * 4


def randomised(depth=3, **options):
    """Two stages in float64 whose norms and carries are not at their neutral start."""
    layers = [*KCLA.build_stage(32, depth, head_channels=8, drop_path=0., **options),
              *KCLA.build_stage(32, depth, 32, 2, head_channels=8, drop_path=0., **options)]
    for layer in layers:
        layer.double().eval()
        for module in layer.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(std=.2), module.running_var.uniform_(.5, 2.)
                module.bias.data.normal_(std=.2)
    xs = [torch.randn(2, 32, *size, dtype=torch.float64) + 0.3 for size in ((6, 5), (3, 3)) for _ in range(depth)]
    return layers, xs


def by_head(vector):
    return vector.unflatten(1, (4, 8))


def over_channels(numbers):
    return numbers.repeat_interleave(8, -1)[..., None, None]


@pytest.mark.parametrize(('options', 'divisor'), [
    (dict(gate_key='accumulated'), 1.), (dict(scale_by_width=True), 8 ** .5), (dict(share_carry_key=True), 1.),
    (dict(gate_key='accumulated', scale_by_width=True, share_carry_key=True), 8 ** .5)], ids=str)
def test_options_written_out_across_a_carry(options, divisor):
    """The gate's angle is to the sum of the keys so far, the carried one among them; ℓ = P‖K‖/√d; the carry's key is by
    the layer's own convolution."""
    torch.manual_seed(3)
    layers, xs = randomised(**options)
    state, tokens, lengths, total, previous = None, [], [], None, None
    for number, (layer, x) in enumerate(zip(layers, xs, strict=True)):
        pooled = x.mean((2, 3))
        key, query = by_head(layer.key(pooled)), by_head(layer.query(pooled))
        length = lambda k, layer=layer: (layer.log_temperature.exp() * k.norm(dim=-1) / divisor).clamp(max=10)  # noqa: E731
        if layer.carry is not None:
            carried = layer.carry.norm(layer.carry.conv(previous))
            convolution = layer.key if options.get('share_carry_key') else layer.carry.key
            carried_key = by_head(convolution(carried.mean((2, 3))))
            tokens, lengths, total = [carried], [length(carried_key)], carried_key
        accumulates = options.get('gate_key') == 'accumulated'
        total = key if total is None else total + key
        angle = total if accumulates else key
        tokens.append(x)
        lengths.append(length(key))
        weights = torch.stack(lengths).exp()
        z = weights.sum(0)
        previous = (over_channels(weights) * torch.stack(tokens)).sum(0) / over_channels(z)
        score = (query * angle).sum(-1) / angle.norm(dim=-1)
        gate = torch.sigmoid(score @ layer.head_mixing.weight.T) * z / (z + 1e-3)
        retrieved, state = layer(x, state)
        written = layer.norm(over_channels(gate) * layer.value(previous)).relu()
        torch.testing.assert_close(retrieved, written, msg=lambda text, number=number: f'layer {number}: {text}')
