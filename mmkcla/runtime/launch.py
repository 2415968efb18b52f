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
    if get_device() == 'cpu' and config.launcher != 'pytorch':
        raise UserError(f'--launcher {config.launcher} needs GPUs; on CPUs use torchrun (tools/dist_train.sh)')
    if get_device() == 'cpu':
        _join_over_gloo(config)
    elif get_device() == 'cuda' and config.launcher == 'pytorch' and _restarted():
        import torch
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']) % torch.cuda.device_count())
        dist = section(section(config, 'env_cfg'), 'dist_cfg')
        _join(dist.get('backend', 'nccl'), dist.get('timeout'))


def _join_over_gloo(config: 'Config') -> None:
    """Initialise the group and DDP without device ids; mmengine would select a CUDA device for both."""
    dist = section(section(config, 'env_cfg'), 'dist_cfg')
    dist['backend'] = 'gloo'
    _join('gloo', dist.get('timeout', 1800))
    config.model_wrapper_cfg = {
        'type': 'MMDistributedDataParallel', 'broadcast_buffers': False,
        'find_unused_parameters': config.get('find_unused_parameters', False),
        **(config.get('model_wrapper_cfg') or {}), 'device_ids': None}


def _restarted() -> bool:
    """Whether torchrun has started these processes again, with the store of the first start."""
    return (os.environ.get('TORCHELASTIC_USE_AGENT_STORE') == 'True'
            and os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') != '0')


def _join(backend: str, seconds: float | None) -> None:
    """Initialise the process group, unless there is one.

    After a restart by torchrun, the keys get a prefix: the store still has the addresses of the processes that ended,
    and torch 2.14 would connect to them.
    """
    from datetime import timedelta

    from torch import distributed
    if distributed.is_initialized():
        return
    more = {} if seconds is None else {'timeout': timedelta(seconds=seconds)}
    if _restarted():
        store = distributed.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False,
                                     wait_for_workers=False)
        prefix = f'mmkcla_start_{os.environ["TORCHELASTIC_RESTART_COUNT"]}'
        more |= dict(store=distributed.PrefixStore(prefix, store), rank=int(os.environ['RANK']),
                     world_size=int(os.environ['WORLD_SIZE']))
    distributed.init_process_group(backend, **more)
