"""Which entries of a checkpoint count as NaN or infinite."""
import pytest
import torch

from mmkcla.errors import UserError
from mmkcla.weights.finite import all_finite, non_finite_entries, require_finite, tensors_in

NAN, INF = float('nan'), float('inf')


def test_entries():
    weights = dict(a=torch.tensor([1., NAN]), b=torch.tensor([INF]), c=torch.tensor([1, 2]), d=torch.ones(2), e='text',
                   f=torch.tensor([1., -INF]), g=torch.tensor([1j, NAN]), h=torch.zeros(0),
                   i=torch.tensor([NAN]).to(torch.float8_e5m2), j=torch.tensor([NAN], dtype=torch.bfloat16))
    assert non_finite_entries(weights) == ['a', 'b', 'f', 'g', 'i', 'j']


def test_causal_masks_are_valid():
    assert non_finite_entries(dict(mask=torch.full((3, 3), -INF).triu(1))) == []
    assert non_finite_entries(dict(weights=torch.full((3, 3), -INF))) == ['weights']


def test_sparse_gradients():
    sparse = torch.sparse_coo_tensor([[0, 1]], [1., NAN], (3,))
    assert not all_finite([sparse]) and all_finite([sparse.float() * 0 + torch.ones(3).to_sparse()]) is False
    assert all_finite([torch.ones(3).to_sparse(), torch.ones(2), torch.tensor([1])])


def test_nested():
    assert [value.item() for value in tensors_in(dict(a=[torch.tensor(1)], b=(dict(c=torch.tensor(2)), 3)))] == [1, 2]


@pytest.mark.parametrize('place', ['state_dict', 'ema_state_dict', 'model', 'model_ema', 'state_dict_ema', None])
def test_refused(place):
    weights = {f'w{number}': torch.tensor([NAN]) for number in range(5)}
    with pytest.raises(UserError, match='checkpoint a.pth has NaN or infinite values in w0, w1, w2 and 2 more: its'):
        require_finite({place: weights} if place else weights, 'a.pth')
    require_finite({place: dict(a=torch.ones(2))} if place else dict(a=torch.ones(2)), 'a.pth')
