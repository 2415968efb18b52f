"""The rank by torch's process group, and before there is one by the launcher's variables."""
import pytest
import torch

from mmkcla.utils.ranks import rank

VARIABLES = ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK')


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def test_a_process_of_its_own_is_the_first() -> None:
    assert rank() == 0


@pytest.mark.parametrize('variable', VARIABLES)
def test_rank_by_the_launcher(monkeypatch, variable) -> None:
    monkeypatch.setenv(variable, '3')
    assert rank() == 3
    monkeypatch.setenv(variable, '')
    assert rank() == 0


def test_the_first_variable_counts(monkeypatch) -> None:
    monkeypatch.setenv('SLURM_PROCID', '2')
    monkeypatch.setenv('RANK', '1')
    assert rank() == 1


def test_a_process_group_goes_before_variables(monkeypatch, tmp_path) -> None:
    torch.distributed.init_process_group('gloo', init_method=f'file://{tmp_path}/store', rank=0, world_size=1)
    try:
        monkeypatch.setenv('RANK', '1')
        assert rank() == 0
    finally:
        torch.distributed.destroy_process_group()
    assert rank() == 1
