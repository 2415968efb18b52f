"""What the sub-commands share: their arguments, and the way from a config's name to one that a runner can take."""
import argparse
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..paths import configs_root, find_config
from .hosts import HOSTS, import_hosts, without_import_noise

if TYPE_CHECKING:
    from mmengine.config import Config

LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """``config`` and ``--cfg-options``."""
    parser.add_argument('config', help='config: a path, or the name of one that ships with the package')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='change entries of the config, as model.backbone.depth=18; lists as a=[1,2]; dicts as '
                             '"a=dict(type=\'X\', n=1)", merged into what is there (with _delete_=True in place of '
                             'it); data_root=DIR moves every path below the old one')


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """``--work-dir``, ``--launcher`` and what ``torch.distributed.launch`` passes."""
    parser.add_argument('--work-dir', help='where logs and results go (default: work_dirs/<config>)')
    parser.add_argument('--no-checks', action='store_true', help='do not check the data before the start')
    parser.add_argument('--launcher', choices=LAUNCHERS,
                        help='how the processes were started (default: pytorch under torchrun, else none)')
    parser.add_argument('--local-rank', '--local_rank', type=int, default=0, help=argparse.SUPPRESS)


def load_config(name: str, options: list[str]) -> 'Config':
    """Read the config called ``name`` and merge ``options`` (``KEY=VALUE`` each) into it.

    Raises:
        UserError: no such config, one that cannot be read, or a malformed option.
    """
    path = find_config(name)
    from mmengine.config import Config

    from ..ops import install
    with without_import_noise():  # a config may import modules of its own, which need mmcv's operators
        install()
    try:
        config = Config.fromfile(path)
    except UserError:
        raise
    except Exception as error:  # a config is a program: whatever it raises is in the user's hands
        root = error  # what mmengine wraps in advice of its own
        while root.__cause__ or root.__context__:
            root = root.__cause__ or root.__context__
        reason = ' '.join((f'{root} ({error})' if root is not error else str(error)).split()) or 'no message'
        reason = _base_elsewhere(reason) or f'{type(error).__name__}: {reason}'
        raise UserError(f'cannot read the config {path}: {reason}') from error
    from .options import merge_options
    merge_options(config, options)
    return config


def require_parts(config: 'Config', keys: Sequence[str], purpose: str) -> None:
    """See that a config has what a command needs, each a dict (an evaluator may be a list of them).

    Raises:
        UserError: naming the first part that is missing or of another kind.
    """
    for key in keys:
        part = config.get(key)
        if part is None:
            raise UserError(f'config {config.filename} has no {key!r}; it cannot be {purpose}')
        if not hasattr(part, 'get') and not (key.endswith('_evaluator') and isinstance(part, (list, tuple))):
            raise UserError(f'config {config.filename}: {key} must be a dict, got {part!r}')


def _base_elsewhere(reason: str) -> str | None:
    """Where the bases are that mmengine has no ``package::`` for, though they are installed."""
    mmseg = importlib.util.find_spec('mmseg')
    if 'mmsegmentation is not installed' in reason and mmseg is not None:
        # to install it, as mmengine says, would overwrite the onedl line's files
        package, folder = 'mmseg', Path(mmseg.origin).parent / '.mim' / 'configs'
    elif 'not support to load mmkcla config' in reason:
        package, folder = 'mmkcla', configs_root()
    else:
        return None
    return f"mmengine does not find _base_ = '{package}::…' here; name the file by its path: _base_ = '{folder}/…'"


def check_evaluators(config: 'Config', splits: tuple[str, ...] = ('val', 'test')) -> None:
    """Build the evaluators once, so that a wrong option is not found after hours; see too that ``save_best`` is among
    the metrics, where the evaluators know their names.

    Call it with the host libraries imported.

    Raises:
        UserError: for an option that an evaluator refuses, or an unknown ``save_best``.
    """
    import copy

    from mmengine.registry import METRICS
    for split in splits:
        evaluators = config.get(f'{split}_evaluator')
        if not evaluators or config.get(f'{split}_dataloader') is None:
            continue
        metrics = []
        with METRICS.switch_scope_and_registry(config.get('default_scope')) as registry:
            for evaluator in evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]:
                try:
                    metrics.append(registry.build(copy.deepcopy(evaluator)))
                except OSError:  # its files are another check's, and those of the test may be elsewhere
                    return
        names = [getattr(metric, 'names', None) for metric in metrics]
        checkpoint = (config.get('default_hooks') or {}).get('checkpoint') or {}
        if split == 'val' and all(names) and (wanted := checkpoint.get('save_best')) not in (None, 'auto'):
            from .hooks.checkpoint import check_save_best
            check_save_best([wanted] if isinstance(wanted, str) else wanted, [name for some in names for name in some])


def section(config: Any, key: str, default: Any = None) -> Any:
    """The part ``key`` of a config, after putting ``default`` (an empty dict) there if there is none.

    What it returns may be changed; ``setdefault`` of a config hands out a copy.
    """
    if config.get(key) is None:
        config[key] = default or {}
    return config[key]


def set_work_dir(config: 'Config', work_dir: str | None) -> Path:
    """Settle where the run writes (argument, else config, else ``work_dirs/<config>``) and see that it can.

    Raises:
        UserError: the folder cannot be made or written.
    """
    chosen = work_dir or config.get('work_dir') or os.path.join('work_dirs', Path(config.filename).stem)
    config.work_dir = str(chosen)
    check_writable(chosen, '--work-dir')
    return Path(chosen)


def check_writable(folder: str | os.PathLike, option: str) -> None:
    """Make ``folder`` if need be and write a file in it.

    Raises:
        UserError: naming the folder, the reason and the ``option`` to change it with.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f'cannot write to {folder}: {error.strerror}; choose another folder with {option}') from error


def hosts_of(config: 'Config') -> list[str]:
    """The host packages that a config uses, its own (``default_scope``) first, then those named as ``mmseg.X``."""
    named = re.findall(rf"'({'|'.join(HOSTS)})\.\w", str(config.to_dict()))
    scope = config.get('default_scope')
    return list(dict.fromkeys(([scope] if scope in HOSTS else []) + named))


def prepare_hosts(config: 'Config') -> str | None:
    """Import what the config needs; return its own host, None for a config of mmengine alone."""
    hosts = hosts_of(config)
    for line in import_hosts(hosts, with_models="'mmkcla." in str(config.get('model'))):
        note(line)
    return hosts[0] if hosts else None


def tidy_dataloaders(config: 'Config', host: str | None) -> None:
    """Settings of the dataloaders that would fail or warn on this machine, and the collation mmpretrain expects."""
    from mmengine.device import get_device
    for split in ('train', 'val', 'test'):
        loader = config.get(f'{split}_dataloader')
        if not loader:
            continue
        if loader.get('num_workers', 0) == 0:  # torch refuses it, as after --cfg-options …num_workers=0
            loader['persistent_workers'] = False
            loader.pop('prefetch_factor', None)
        if get_device() == 'cpu':
            loader['pin_memory'] = False
        if host == 'mmpretrain':
            loader.setdefault('collate_fn', dict(type='default_collate'))
        _name_unreadable_images(loader)


def _name_unreadable_images(part: Any) -> None:
    """Put mmkcla's loader, equal but for its errors, wherever a pipeline has mmcv's."""
    if isinstance(part, dict):
        if part.get('type') in ('LoadImageFromFile', 'mmcv.LoadImageFromFile', 'mmdet.LoadImageFromFile'):
            part['type'] = 'mmkcla.LoadImageFromFile'
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for entry in part:
            _name_unreadable_images(entry)


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


def note(line: str) -> None:
    """A line for people, on stderr and from the first process only."""
    if os.environ.get('RANK', '0') == '0':
        print(f'note: {line}', file=sys.stderr)
