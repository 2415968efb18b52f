"""Arguments shared by several commands."""
import argparse
from typing import Any

from ..runtime.launch import LAUNCHERS


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``config`` and ``--cfg-options``."""
    parser.add_argument('config', help='config file: a path, or the name of a config shipped with the '
                                       'package; or the work dir of a training, which stands for its config')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='override entries of the config, e.g. model.backbone.depth=18; a Python literal is that '
                             'value, other text is kept as written; lists: a=[1,2] or a=1,2; entries of lists: '
                             'a.0.b=1, a.-1.b=1; dicts: "a=dict(type=\'X\', n=1)", merged into the existing dict '
                             '(_delete_=True replaces it); names with dots: "a.\'b.c\'=1"; data_root=DIR changes every '
                             'path below the old data_root (see docs/settings.md)')


CHECKPOINT_HELP = ('checkpoint (.pth or .safetensors): a path or an http(s) URL; may be omitted after a work dir, '
                   'whose best checkpoint is used, or the last one if it has no best')


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--work-dir``, ``--no-checks``, ``--launcher`` and ``--local-rank`` (of ``torch.distributed.launch``)."""
    parser.add_argument('--work-dir', help='folder of logs and results (default: work_dirs/<config>)')
    parser.add_argument('--no-checks', action='store_true', help='skip the data checks')
    parser.add_argument('--launcher', choices=LAUNCHERS,
                        help='launcher of the processes (default: pytorch under torchrun, else none)')
    parser.add_argument('--local-rank', '--local_rank', type=int, default=0, help=argparse.SUPPRESS)


def add_seed_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments shared by ``mmkcla seeds`` and ``mmkcla sweep``."""
    parser.add_argument('--seeds', nargs='+', type=int, required=True, metavar='N', help='random seeds, e.g. 0 1 2 3 4')
    parser.add_argument('--no-checks', action='store_true', help='skip the data checks before each run')
    parser.add_argument('--launcher', choices=LAUNCHERS, default='none',
                        help='start each run with torchrun (pytorch), srun (slurm) or mpirun (mpi) '
                             '(default: %(default)s)')
    parser.add_argument('--gpus', type=int, metavar='N',
                        help='processes per run with --launcher (default: the number of GPUs of this machine)')
    parser.add_argument('--amp', action='store_true', help='train with mixed precision (needs a GPU)')
    parser.add_argument('--auto-scale-lr', action='store_true',
                        help='scale the learning rate by batch size / auto_scale_lr.base_batch_size')
    parser.add_argument('--tta', action='store_true', help='test with test-time augmentation')
    parser.add_argument('--checkpoint', choices=('best', 'last'), default='best',
                        help='checkpoint to test; best needs save_best in the config, else the last one is used '
                             '(default: %(default)s)')
    parser.add_argument('--test-only', action='store_true', help='do not train; test the trained seeds again')
    parser.add_argument('--dry-run', action='store_true', help='print the commands without running them; write nothing')


def seed_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the arguments of :func:`add_seed_arguments`, by name."""
    parser = argparse.ArgumentParser()
    add_seed_arguments(parser)
    return {action.dest: getattr(args, action.dest) for action in parser._actions if action.dest != 'help'}
