"""What KCLA carries from one stage to the next: sizes, widths, and none."""
import pytest
import torch
from torch import nn

from mmkcla.layers import KCLA


@pytest.mark.parametrize('size', [(1, 1), (7, 5), (8, 8)])
def test_carry_rounds_up(size):
    stage = KCLA.build_stage(64, 2, 32, 2, head_channels=16).eval()
    state = (torch.randn(2, 32, *size), torch.zeros(2, 2))
    small = torch.randn(2, 64, (size[0] + 1) // 2, (size[1] + 1) // 2)
    assert run_from(stage, small, state).shape == small.shape


def run_from(stage, x, state):
    for layer in stage:
        out, state = layer(x, state)
    return out


def test_carry_with_stride_one_and_equal_channels():
    same = KCLA(64, 16, carry_channels=64, carry_stride=1)
    assert isinstance(same.carry.conv, nn.Identity)
    shrinking = KCLA(64, 16, carry_channels=64, carry_stride=2).eval()
    out, _ = shrinking(torch.randn(1, 64, 4, 4), (torch.randn(1, 64, 8, 8), torch.zeros(1, 4)))
    assert out.shape == (1, 64, 4, 4)


def test_stage_without_carry_starts_anew():
    stage = KCLA.build_stage(32, 2, head_channels=16).eval()
    x = torch.randn(2, 32, 4, 4)
    ours = stage[0](x, (torch.randn(2, 16, 8, 8), torch.zeros(2, 1)))[0]
    torch.testing.assert_close(ours, stage[0](x)[0], rtol=0, atol=0)
