"""Set up distributed runs."""
import os
from typing import TYPE_CHECKING

from ..errors import UserError
from .config import section
from .watch import timeout_seconds, watch_parent

if TYPE_CHECKING:
    from mmengine.config import Config

LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')


def set_launcher(config: 'Config', launcher: str | None, local_rank: int) -> None:
    """Set the launcher of the config; without accelerators, initialise the process group with gloo.

    Raises:
        UserError: the environment variables of the launcher are missing, or it needs a GPU and there is none.
    """
    under_torchrun = {'RANK', 'WORLD_SIZE', 'MASTER_ADDR'} <= os.environ.keys()
    config.launcher = launcher or ('pytorch' if under_torchrun else 'none')
    if config.launcher == 'none':
        return
    os.environ.setdefault('LOCAL_RANK', str(local_rank))
    if config.launcher == 'pytorch' and not under_torchrun:
        raise UserError('--launcher pytorch needs torchrun: tools/dist_train.sh CONFIG GPUS, or '
                        'torchrun --nproc-per-node=GPUS tools/train.py CONFIG')
    if under_torchrun and 'TORCHELASTIC_RUN_ID' in os.environ:
        watch_parent()
    timeout_seconds()  # refuse a wrong value before the start
    from mmengine.device import get_device
    if get_device() != 'cpu':
        return
    if config.launcher != 'pytorch':
        raise UserError(f'--launcher {config.launcher} needs GPUs; on CPUs use torchrun (tools/dist_train.sh)')
    _join_over_gloo(config)


def _join_over_gloo(config: 'Config') -> None:
    """Initialise the group and DDP without device ids; mmengine would select a CUDA device for both."""
    from datetime import timedelta

    from torch import distributed
    dist = section(section(config, 'env_cfg'), 'dist_cfg')
    dist['backend'] = 'gloo'
    if not distributed.is_initialized():
        distributed.init_process_group('gloo', timeout=timedelta(seconds=dist.get('timeout', 1800)))
    config.model_wrapper_cfg = {
        'type': 'MMDistributedDataParallel', 'broadcast_buffers': False,
        'find_unused_parameters': config.get('find_unused_parameters', False),
        **(config.get('model_wrapper_cfg') or {}), 'device_ids': None}
