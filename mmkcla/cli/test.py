"""Evaluate a checkpoint on the test set of a config.

The checkpoint is compared with the model first, and one that fits only in part is refused. The metrics go to
metrics.json in the work dir, and what they are of (checkpoint, config, options, versions) to metrics_info.json.
mmkcla.BinarySegMetric leaves a table with a row an image, and pictures of the worst, in <work-dir>/evaluation.
"""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..runtime.config import (
    add_config_arguments,
    add_run_arguments,
    check_evaluators,
    check_writable,
    load_config,
    note,
    prepare_hosts,
    require_parts,
    section,
    set_launcher,
    set_work_dir,
    tidy_dataloaders,
)
from ..runtime.hosts import quiet_logger

if TYPE_CHECKING:
    from mmengine.config import Config

SUMMARY = 'evaluate a checkpoint'
PARTIAL_HINT = '; --allow-partial takes it nevertheless'
_DUMP = {'mmdet': 'mmdet.DumpDetResults'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla test``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', nargs='+', help='checkpoint (.pth or .safetensors): a path or an http address')
    add_run_arguments(parser)
    parser.add_argument('--out', metavar='FILE.pkl', help='write the predictions as the host libraries do')
    parser.add_argument('--show-dir', help='draw predictions beside the ground truth into this folder')
    parser.add_argument('--tta', action='store_true',
                        help="test-time augmentation: the config's, else each image and its mirror image")
    parser.add_argument('--allow-partial', action='store_true',
                        help='evaluate although the checkpoint fits the model only in part')


def run(args: argparse.Namespace) -> int:
    """Evaluate; see :func:`add_arguments`."""
    checkpoint = only_one(args.checkpoint)
    check_checkpoint(checkpoint)
    if args.out and not args.out.endswith(('.pkl', '.pickle')):
        raise UserError(f'--out must end with .pkl or .pickle, got {args.out}')
    for folder, option in ((args.work_dir, '--work-dir'), (args.show_dir, '--show-dir'),
                           (args.out and Path(args.out).parent, '--out')):
        if folder:
            check_writable(folder, option)
    config = load_config(args.config, args.cfg_options)
    require_parts(config, ('model', 'test_dataloader', 'test_evaluator', 'test_cfg'), 'tested')
    work_dir = set_work_dir(config, args.work_dir)
    set_launcher(config, args.launcher, args.local_rank)
    host = prepare_hosts(config)
    tidy_dataloaders(config, host)
    if not args.no_checks:
        from ..datasets.check import check_config
        check_config(config, ('test',))
        check_evaluators(config, ('test',))
    evaluate_only(config)
    if args.show_dir and args.tta and host == 'mmpretrain':
        raise UserError('--show-dir: mmpretrain draws what the model was given, and --tta gives it two images for one; '
                        'leave out one of the two')
    if args.show_dir:
        draw_into(config, host, args.show_dir)
    if args.tta:
        from ..runtime.inference.tta import use_tta
        use_tta(config, host)
    reports = report_into(config, work_dir)
    if args.out:
        evaluators = config.test_evaluator
        config.test_evaluator = [*(evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]),
                                 dict(type=_DUMP.get(host, 'DumpResults'), out_file_path=args.out)]

    from mmengine.dist import is_main_process

    from ..runtime.run_info import INFO, METRICS, run_info
    from ..runtime.runner import build_runner
    from ..runtime.visualization import skip_what_cannot_be_drawn
    from ..utils.files import write_json
    config.load_from = checkpoint
    runner = build_runner(config, required='some' if args.allow_partial else 'all', hint=PARTIAL_HINT)
    quiet_logger(runner.logger)
    if args.show_dir:
        skip_what_cannot_be_drawn(runner)
    metrics = runner.test()
    if is_main_process():
        write_json(work_dir / METRICS, metrics)
        write_json(work_dir / INFO, run_info(checkpoint, runner.loaded, config=config.filename, tta=args.tta,
                                             cfg_options=args.cfg_options, allow_partial=args.allow_partial))
        print(f'metrics: {work_dir / METRICS} (what they are of: {INFO})')
        for folder in reports:
            print(f'per image: {folder}')
        if args.show_dir:
            print(f'pictures: {pictures_folder(host, args.show_dir)}')
        if not metrics:
            note('the evaluator gave no metrics; it does so where the model predicts nothing')
    return 0


def only_one(checkpoints: list[str]) -> str:
    """The checkpoint; a pattern may have become several.

    Raises:
        UserError: there are several.
    """
    if len(checkpoints) > 1:
        count = {2: 'two', 3: 'three'}.get(len(checkpoints), str(len(checkpoints)))
        raise UserError(f'{count} checkpoints given: {", ".join(checkpoints)}; name one')
    return checkpoints[0]


def report_into(config: 'Config', work_dir: Path) -> list[Path]:
    """Have each ``BinarySegMetric`` without an ``out_dir`` write its tables and pictures below ``work_dir``.

    Returns:
        The folders of all of them.
    """
    evaluators = config.test_evaluator
    folders: list[Path] = []
    for evaluator in evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]:
        if not _is_binary_metric(evaluator):
            continue
        if evaluator.get('out_dir') is None:
            number = len(folders) + 1
            evaluator['out_dir'] = str(work_dir / ('evaluation' if number == 1 else f'evaluation_{number}'))
        folders.append(Path(evaluator['out_dir']))
    return folders


def _is_binary_metric(evaluator: Any) -> bool:
    kind = evaluator.get('type') if hasattr(evaluator, 'get') else None
    return getattr(kind, '__name__', str(kind)) in ('BinarySegMetric', 'mmkcla.BinarySegMetric')


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


def pictures_folder(host: str | None, folder: str) -> Path:
    """Where below ``--show-dir`` the host puts its pictures."""
    return Path(folder) / 'vis_data' / 'vis_image' if host == 'mmseg' else Path(folder)
