"""DistributedDataParallel over gloo: two and four processes have the loss and the gradients of one, to rounding.

``find_unused_parameters`` is off, as in all configs: at the second step DDP reports a parameter without a gradient.
"""
import pytest
import torch
from parallel_nets import CASES, METHODS, MODES, VARIANTS, WITH_CARRY, one_process, this_rank
from ranks import run_ranks

import mmkcla.models.necks  # noqa: F401
from mmkcla.layers import DLABase, LayerAttention, layer_attention_class
from mmkcla.registry import MODELS

WANTED = [(name, mode) for name in CASES for mode in MODES]


@pytest.fixture(scope='module')
def two(tmp_path_factory):
    return run_ranks(this_rank, 2, tmp_path_factory.mktemp('two'), WANTED)


def check(ranks, name, mode):
    """With batch norms in training, the reference passes the batch through the net in the parts that the ranks have."""
    expected = one_process(name, mode, 1 if mode == 'frozen' else len(ranks))
    for found in (rank[name, mode] for rank in ranks):
        assert not isinstance(found, str), found
        for (loss, gradients), (loss_alone, alone) in zip(found, expected, strict=True):
            torch.testing.assert_close(loss, loss_alone, rtol=1e-11, atol=1e-12)
            size = max(float(gradient.abs().max()) for gradient in alone)
            assert size > 1e-3
            for ours, theirs in zip(gradients, alone, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11 * size)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('name', CASES)
def test_two_processes_equal_one(two, name, mode):
    check(two, name, mode)


def test_every_method_neck_and_option_is_here():
    necks = {name for name, kind in MODELS.module_dict.items() if kind.__module__.startswith('mmkcla.models.necks')}
    assert necks <= {word for name in CASES for word in name.split()} and len(necks) == 3
    assert len(METHODS) == 8 and WITH_CARRY == ['KCLA']
    for method in METHODS:
        own = layer_attention_class(method).options().keys() - LayerAttention.options().keys()
        varied = {option for variant in VARIANTS.get(method, ()) for option in variant}
        assert own - varied <= {'head_channels', 'reduction', 'temperature_range', 'zero_init'}, method


def test_a_parameter_without_gradient_is_found(tmp_path, monkeypatch):
    """What a unit that acts on earlier layers only would be in a stage of one block."""
    monkeypatch.setattr(DLABase, 'for_earlier_layers', False)
    case = 'DLABase one block a stage', 'frozen'
    for rank in run_ranks(this_rank, 2, tmp_path, [case]):
        assert rank[case].startswith('Expected to have finished reduction in the prior iteration')


@pytest.mark.slow
def test_four_processes_equal_one(tmp_path):
    ranks = run_ranks(this_rank, 4, tmp_path, WANTED)
    for name, mode in WANTED:
        check(ranks, name, mode)
