"""The bytes that autograd keeps, and configs measured in turns."""
import torch
from torch import nn

from mmkcla.analysis.features import feature_costs, saved_storages


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Conv2d(3, 3, 1), nn.Tanh())))

    def extract_feat(self, x):
        return (self.body(x), )


def test_counts_each_kept_map_once():
    """A convolution keeps its input, tanh its output, which is the next convolution's input; the square keeps the last."""
    x = torch.randn(2, 3, 4, 5)
    net = Net(3)
    with saved_storages(net) as saved:
        net.extract_feat(x)[0].square().mean()
    assert sum(saved.values()) == (1 + 3) * x.numel() * 4


def test_models_take_turns():
    nets = {'one': Net(1), 'three': Net(3)}
    costs = feature_costs(nets, (2, 3, 4, 5), 3)
    assert [cost.config for cost in costs] == ['one', 'three'] and [len(cost.seconds) for cost in costs] == [3, 3]
    assert [cost.parameters for cost in costs] == [12, 36] and costs[0].median > 0
    assert [cost.saved_bytes for cost in costs] == [2 * 480, 4 * 480]
