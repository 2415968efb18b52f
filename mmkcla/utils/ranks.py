"""Which of several processes this is."""
import os
import sys


def rank() -> int:
    """0 for the only or first process of a training; by torch's process group, before there is one by the launchers'
    words."""
    distributed = sys.modules.get('torch.distributed')
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    for variable in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'):
        if os.environ.get(variable):
            return int(os.environ[variable])
    return 0
