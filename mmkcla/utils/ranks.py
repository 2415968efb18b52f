"""Rank of the process in distributed training."""
import os
import sys


def rank() -> int:
    """Rank of this process; 0 without distributed training.

    Uses torch's process group, or the environment variables of the launcher if the group is not initialised.
    """
    distributed = sys.modules.get('torch.distributed')
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    for variable in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'):
        if os.environ.get(variable):
            return int(os.environ[variable])
    return 0
