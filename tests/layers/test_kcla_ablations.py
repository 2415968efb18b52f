"""The options of KCLA that only the ablations use."""
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
