"""How the processes of a run find each other."""
import os
from typing import TYPE_CHECKING

from ..errors import UserError
from .config import section

if TYPE_CHECKING:
    from mmengine.config import Config

LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')


def set_launcher(config: 'Config', launcher: str | None, local_rank: int) -> None:
    """Settle how processes find each other; on a machine without accelerators they talk over gloo.

    Raises:
        UserError: the launcher's environment variables are missing, or it needs a GPU that is not there.
    """
    under_torchrun = {'RANK', 'WORLD_SIZE', 'MASTER_ADDR'} <= os.environ.keys()
    config.launcher = launcher or ('pytorch' if under_torchrun else 'none')
    if config.launcher == 'none':
        return
    os.environ.setdefault('LOCAL_RANK', str(local_rank))
    if config.launcher == 'pytorch' and not under_torchrun:
        raise UserError('--launcher pytorch needs torchrun: tools/dist_train.sh CONFIG GPUS, or '
                        'torchrun --nproc-per-node=GPUS tools/train.py CONFIG')
    from mmengine.device import get_device
    if get_device() != 'cpu':
        return
    if config.launcher != 'pytorch':
        raise UserError(f'--launcher {config.launcher} needs GPUs; on CPUs start with torchrun (tools/dist_train.sh)')
    _join_over_gloo(config)


def _join_over_gloo(config: 'Config') -> None:
    """mmengine selects a CUDA device while it joins the group, and hands DDP its number: do both without one here."""
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
