"""Train the model of a config: detection, segmentation or classification.

Logs, checkpoints, curves.csv and curves.png are written to the work dir. To continue an interrupted training, run the
same command with --resume; it starts from the last intact checkpoint. "mmkcla train WORK_DIR" does the same with the
config in the work dir.
"""
import argparse
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..runtime.checks import check_keys, check_settings
from ..runtime.checks.effects import unread_options
from ..runtime.checks.weights import check_weights
from ..runtime.config import check_evaluators, check_writable, load_config, require_parts, section, set_work_dir
from ..runtime.dataloaders import tidy_dataloaders
from ..runtime.hosts import prepare_hosts, quiet_logger, quiet_threads, without_noise
from ..runtime.launch import set_launcher
from ..runtime.resume import set_resume
from ..runtime.run_folder import folder_of_run
from ..runtime.training import add_outputs, check_preprocessor, set_learning_rate, use_amp
from ..utils.text import note, printable
from .arguments import add_config_arguments, add_run_arguments
from .errors import explain

SUMMARY = 'train a model'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla train``."""
    add_config_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument('--amp', action='store_true', help='train with mixed precision (needs a GPU)')
    parser.add_argument('--auto-scale-lr', action='store_true',
                        help='scale the learning rate by batch size / auto_scale_lr.base_batch_size')
    parser.add_argument('--resume', nargs='?', const='auto', metavar='CHECKPOINT',
                        help='resume from CHECKPOINT, or else from the last checkpoint in the work dir, if any')
    parser.add_argument('--smoke', action='store_true',
                        help='try each stage in seconds instead of training: two iterations, a validation of a few '
                             'images, a checkpoint, a resume and a prediction, in a temporary folder; shows the peak '
                             'memory and how long the training would take')
    parser.add_argument('--allow-partial', action='store_true',
                        help='train even if load_from matches almost nothing of the model')
    parser.add_argument('--seed', type=_natural, help='random seed of the initial weights, the order of the data and '
                        'the augmentation; it is logged and in the results (default: that of the config, else random)')


def _natural(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f'must be an integer of at least 0, got {text}')
    return int(text)


@without_noise()
def run(args: argparse.Namespace) -> int:
    """Train the model; see :func:`add_arguments`."""
    if args.smoke:
        return _smoke(args)
    run_folder = folder_of_run(args.config)
    if run_folder and not args.work_dir:  # goes on in place
        args.work_dir, args.resume = str(run_folder), args.resume or 'auto'
    if args.work_dir:
        check_writable(args.work_dir, '--work-dir')
    if args.resume not in (None, 'auto') and '://' not in args.resume and not Path(args.resume).is_file():
        raise UserError(f'--resume: no such checkpoint: {args.resume}')
    config, _ = _complete_config(args)
    if args.resume:
        set_resume(config, args.resume, Path(config.work_dir))

    from ..runtime.runner import build_runner
    from ..utils.files import training_lock
    with training_lock(config.work_dir), quiet_threads():
        runner = build_runner(config, required=_required(args))
        quiet_logger(runner.logger)
        runner.train()
    return 0


def _complete_config(args: argparse.Namespace) -> tuple[Any, str | None]:
    """Load the config, check it and the data, and add what every training has; return it with its main host."""
    config = load_config(args.config, args.cfg_options)
    require_parts(config, ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper'), 'trained')
    check_settings(config)
    for line in unread_options('train', args.cfg_options):
        note(line)
    check_preprocessor(config)
    set_work_dir(config, args.work_dir)
    set_launcher(config, args.launcher, args.local_rank)
    host = prepare_hosts(config)
    check_keys(config)
    check_weights(config, args.resume)
    tidy_dataloaders(config, host)
    from ..datasets.palettes import fit_palettes  # imports mmengine
    fit_palettes(config, ('train', 'val'))
    if not args.no_checks:
        from ..datasets.check import check_config
        check_config(config, ('train', 'val'))
        check_evaluators(config)
    if args.seed is not None:
        section(config, 'randomness')['seed'] = args.seed
    if args.amp:
        use_amp(config)
    from ..runtime.checks.directions import set_rules
    set_rules(config)
    set_learning_rate(config, args.auto_scale_lr)
    add_outputs(config)
    return config, host


def _required(args: argparse.Namespace) -> str:
    return 'some' if args.allow_partial else 'most'


def _smoke(args: argparse.Namespace) -> int:
    """Run each stage once; return 1 if one fails."""
    if args.resume:
        raise UserError('--smoke and --resume cannot be combined: a smoke run resumes from a checkpoint of its own')
    with tempfile.TemporaryDirectory(prefix='mmkcla-smoke-', ignore_cleanup_errors=True) as folder:
        args.work_dir = folder  # nothing is written elsewhere
        config, host = _complete_config(args)
        from ..runtime.smoke import run_smoke
        try:
            run_smoke(config, host, Path(folder), _required(args))
        except Exception as error:
            line = explain(error)
            if line is None:
                raise
            if args.traceback:
                traceback.print_exc()
            print(f'error: {printable(line)}', file=sys.stderr)
            return 1
    return 0
