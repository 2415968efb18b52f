"""Evaluate a checkpoint on the test set of a config.

The checkpoint is compared with the model first, and one that fits only in part is refused. The metrics go to
metrics.json in the work dir.
"""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .common import (
    add_config_arguments,
    add_run_arguments,
    check_writable,
    load_config,
    note,
    prepare_hosts,
    section,
    set_launcher,
    set_work_dir,
    tidy_dataloaders,
)
from .quiet import quiet_logger

if TYPE_CHECKING:
    from mmengine.config import Config

SUMMARY = 'evaluate a checkpoint'
PARTIAL_HINT = '; --allow-partial takes it nevertheless'
_DUMP = {'mmdet': 'mmdet.DumpDetResults'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla test``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', help='checkpoint (.pth or .safetensors): a path or an http address')
    add_run_arguments(parser)
    parser.add_argument('--out', metavar='FILE.pkl', help='write the predictions as the host libraries do')
    parser.add_argument('--show-dir', help='draw predictions beside the ground truth into this folder')
    parser.add_argument('--tta', action='store_true',
                        help="test-time augmentation: the config's, else each image and its mirror image")
    parser.add_argument('--allow-partial', action='store_true',
                        help='evaluate although the checkpoint fits the model only in part')


def run(args: argparse.Namespace) -> int:
    """Evaluate; see :func:`add_arguments`."""
    check_checkpoint(args.checkpoint)
    if args.out and not args.out.endswith(('.pkl', '.pickle')):
        raise UserError(f'--out must end with .pkl or .pickle, got {args.out}')
    for folder, option in ((args.work_dir, '--work-dir'), (args.show_dir, '--show-dir'),
                           (args.out and Path(args.out).parent, '--out')):
        if folder:
            check_writable(folder, option)
    config = load_config(args.config, args.cfg_options)
    for key in ('model', 'test_dataloader', 'test_evaluator', 'test_cfg'):
        if config.get(key) is None:
            raise UserError(f'config {config.filename} has no {key!r}; it cannot be tested')
    work_dir = set_work_dir(config, args.work_dir)
    set_launcher(config, args.launcher, args.local_rank)
    host = prepare_hosts(config)
    tidy_dataloaders(config, host)
    if not args.no_checks:
        from ..datasets.check import check_config
        check_config(config, ('test',))
    evaluate_only(config)
    if args.show_dir and args.tta and host == 'mmpretrain':
        raise UserError('--show-dir: mmpretrain draws what the model was given, and --tta gives it two images for one; '
                        'leave out one of the two')
    if args.show_dir:
        draw_into(config, host, args.show_dir)
    if args.tta:
        from .tta import use_tta
        use_tta(config, host)
    if args.out:
        evaluators = config.test_evaluator
        config.test_evaluator = [*(evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]),
                                 dict(type=_DUMP.get(host, 'DumpResults'), out_file_path=args.out)]

    from mmengine.dist import is_main_process

    from ..engine.files import write_json
    from ..engine.runner import build_runner
    config.load_from = args.checkpoint
    runner = build_runner(config, required='some' if args.allow_partial else 'all', hint=PARTIAL_HINT)
    quiet_logger(runner.logger)
    metrics = runner.test()
    if is_main_process():
        write_json(work_dir / 'metrics.json', metrics)
        print(f'metrics: {work_dir / "metrics.json"}')
        if not metrics:
            note('the evaluator gave no metrics; it does so where the model predicts nothing')
    return 0


def check_checkpoint(name: str) -> None:
    """See that a checkpoint is there, before anything heavy is imported.

    Raises:
        UserError: there is no such file, or it is a folder.
    """
    if '://' in name or Path(name).is_file():
        return
    if Path(name).is_dir():
        inside = sorted(path.name for path in Path(name).glob('*.pth'))
        hint = f'; it has {", ".join(inside[-3:])}' if inside else ', without a .pth in it'
        raise UserError(f'checkpoint {name} is a folder{hint}')
    raise UserError(f'no such checkpoint: {name}')


def evaluate_only(config: 'Config') -> None:
    """Drop what belongs to training: its loops and data, resuming, and the averaged copy of the weights.

    A checkpoint written under ``EMAHook`` has the averaged weights in their place already.
    """
    config.resume = False
    for key in ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr',
                'val_dataloader', 'val_cfg', 'val_evaluator'):
        config.pop(key, None)
    config.custom_hooks = [hook for hook in config.get('custom_hooks') or [] if 'EMAHook' not in str(hook.get('type'))]


def draw_into(config: 'Config', host: str | None, folder: str) -> None:
    """Have the host's visualization hook draw each test image into ``folder``.

    Raises:
        UserError: the host of the config is not known.
    """
    hook_and_visualizer = {'mmdet': ('DetVisualizationHook', 'DetLocalVisualizer'),
                           'mmseg': ('SegVisualizationHook', 'SegLocalVisualizer'),
                           'mmpretrain': ('VisualizationHook', 'UniversalVisualizer')}
    if host not in hook_and_visualizer:
        raise UserError('--show-dir needs a config of mmdet, mmseg or mmpretrain (its default_scope)')
    folder = str(Path(folder).resolve())  # the hosts put a relative folder below the work dir
    hook_type, visualizer_type = hook_and_visualizer[host]
    hook = section(section(config, 'default_hooks'), 'visualization', dict(type=hook_type))
    visualizer = section(config, 'visualizer', dict(type=visualizer_type, name='visualizer'))
    if host == 'mmdet':
        hook.update(draw=True, interval=1, test_out_dir=folder)
    elif host == 'mmseg':
        hook.update(draw=True, interval=1)
        visualizer.update(save_dir=folder)
        section(visualizer, 'vis_backends', [dict(type='LocalVisBackend')])
    else:
        hook.update(enable=True, interval=1, out_dir=folder)
