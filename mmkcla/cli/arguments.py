"""Arguments that several commands share."""
import argparse
from typing import Any

from ..runtime.launch import LAUNCHERS


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


def add_seed_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``mmkcla seeds`` and ``mmkcla sweep`` share: ``--seeds``, and how each is trained and tested."""
    parser.add_argument('--seeds', nargs='+', type=int, required=True, metavar='N', help='as 0 1 2 3 4')
    parser.add_argument('--no-checks', action='store_true', help='do not check the data before each start')
    parser.add_argument('--launcher', choices=LAUNCHERS, default='none',
                        help='start each training with torchrun (pytorch), srun or mpirun (default: %(default)s)')
    parser.add_argument('--gpus', type=int, metavar='N',
                        help='processes of each training with --launcher (default: the GPUs of this machine)')
    parser.add_argument('--amp', action='store_true', help='train in mixed precision (needs a GPU)')
    parser.add_argument('--auto-scale-lr', action='store_true',
                        help="scale the learning rate by the batch size over auto_scale_lr.base_batch_size")
    parser.add_argument('--tta', action='store_true', help='test with test-time augmentation')
    parser.add_argument('--checkpoint', choices=('best', 'last'), default='best',
                        help='which one is tested (default: %(default)s, where the config has save_best)')
    parser.add_argument('--test-only', action='store_true', help='test what is trained, anew; train nothing')
    parser.add_argument('--dry-run', action='store_true', help='print the commands; run and write nothing')


def seed_options(args: argparse.Namespace) -> dict[str, Any]:
    """The values of :func:`add_seed_arguments`, by name."""
    parser = argparse.ArgumentParser()
    add_seed_arguments(parser)
    return {action.dest: getattr(args, action.dest) for action in parser._actions if action.dest != 'help'}
