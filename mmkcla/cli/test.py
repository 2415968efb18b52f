"""Evaluate a checkpoint on the test set of a config.

The checkpoint is compared with the model before the evaluation; a partial match is refused. The metrics are written to
metrics.json in the work dir, and the checkpoint, config, options and versions to metrics_info.json.
mmkcla.BinarySegMetric also writes a table with one row per image, and pictures of the worst images, to
<work-dir>/evaluation.
"""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runtime.checks import check_keys, check_settings
from ..runtime.checks.effects import unread_options
from ..runtime.config import check_evaluators, check_writable, load_config, require_parts, set_work_dir
from ..runtime.dataloaders import tidy_dataloaders
from ..runtime.hosts import prepare_hosts, quiet_logger, without_noise
from ..runtime.launch import set_launcher
from ..runtime.per_image import keep_per_image, record_detections
from ..runtime.run_folder import checkpoint_of_run, folder_of_run, required_checkpoint
from ..runtime.test_reports import report_into
from ..runtime.testing import (
    PARTIAL_HINT,
    check_checkpoint,
    check_readable,
    draw_into,
    evaluate_only,
    one_checkpoint,
)
from ..utils.text import note
from .arguments import CHECKPOINT_HELP, add_config_arguments, add_run_arguments

if TYPE_CHECKING:
    pass

SUMMARY = 'evaluate a checkpoint'
_DUMP = {'mmdet': 'mmdet.DumpDetResults'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla test``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', nargs='*', help=CHECKPOINT_HELP)
    add_run_arguments(parser)
    parser.add_argument('--out', metavar='FILE.pkl', help='write the predictions to this file')
    parser.add_argument('--show-dir', help='write pictures of predictions next to the ground truth to this folder')
    parser.add_argument('--tta', action='store_true',
                        help='use test-time augmentation: that of the config, else horizontal flip')
    parser.add_argument('--per-image', action='store_true',
                        help='also write the answer for each image (classification) or the detections (COCO) to '
                             '<work-dir>/evaluation; "mmkcla seeds" and "sweep" do so, to compare configs over images')
    parser.add_argument('--allow-partial', action='store_true',
                        help='evaluate even if the checkpoint matches the model only partially')


@without_noise()
def run(args: argparse.Namespace) -> int:
    """Evaluate the checkpoint; see :func:`add_arguments`."""
    checkpoint = required_checkpoint(args.config, one_checkpoint(args.checkpoint))
    check_checkpoint(checkpoint)
    if args.out and not args.out.endswith(('.pkl', '.pickle')):
        raise UserError(f'--out must end with .pkl or .pickle, got {args.out}')
    for folder, option in ((args.work_dir, '--work-dir'), (args.show_dir, '--show-dir'),
                           (args.out and Path(args.out).parent, '--out')):
        if folder:
            check_writable(folder, option)
    config = load_config(args.config, args.cfg_options)
    run_folder = folder_of_run(args.config)
    if checkpoint is None:
        checkpoint = checkpoint_of_run(run_folder, config)
    else:
        check_readable(checkpoint)
    require_parts(config, ('model', 'test_dataloader', 'test_evaluator', 'test_cfg'), 'tested')
    check_settings(config, training=False)
    for line in unread_options('test', args.cfg_options):
        note(line)
    work_dir = set_work_dir(config, args.work_dir or run_folder)
    set_launcher(config, args.launcher, args.local_rank)
    host = prepare_hosts(config)
    check_keys(config)
    tidy_dataloaders(config, host)
    from ..datasets.palettes import fit_palettes  # imports mmengine
    fit_palettes(config, ('test',))
    from ..runtime.class_scores import class_table, score_classes
    labels = None
    if not args.no_checks:
        from ..datasets.check import check_config
        from ..datasets.compare import labels_of
        check_config(config, ('test',))
        labels = labels_of(config, 'test')
        check_evaluators(config, ('test',))
    score_classes(config, labels[0] if labels else None)
    evaluate_only(config)
    if args.show_dir and args.tta and host == 'mmpretrain':
        raise UserError('--show-dir cannot be combined with --tta for mmpretrain, which cannot draw augmented images; '
                        'use only one of the two')
    if args.show_dir:
        draw_into(config, host)
    if args.tta:
        from ..runtime.inference.tta import use_tta
        use_tta(config, host)
    reports = report_into(config, work_dir, labels[0] if labels else None)
    annotations = keep_per_image(config, work_dir) if args.per_image else None
    if args.out:
        evaluators = config.test_evaluator
        config.test_evaluator = [*(evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]),
                                 dict(type=_DUMP.get(host, 'DumpResults'), out_file_path=args.out)]

    from mmengine.dist import is_main_process

    from ..runtime.run_info import INFO, METRICS, run_info
    from ..runtime.runner import build_runner
    from ..runtime.visualization import skip_what_cannot_be_drawn, write_pictures
    from ..utils.files import write_json
    config.load_from = checkpoint
    runner = build_runner(config, required='some' if args.allow_partial else 'all', hint=PARTIAL_HINT,
                          partial_allowed=args.allow_partial)
    runner.labels = labels
    quiet_logger(runner.logger)
    if args.show_dir:
        write_pictures(runner, Path(args.show_dir))
        skip_what_cannot_be_drawn(runner)
    metrics = runner.test()
    if is_main_process():
        if annotations:
            record_detections(runner, work_dir, annotations)
        write_json(work_dir / METRICS, metrics)
        write_json(work_dir / INFO, run_info(checkpoint, runner.loaded, config=config.filename, tta=args.tta,
                                             cfg_options=args.cfg_options, allow_partial=args.allow_partial))
        classes = labels[0] if labels else (runner.test_loop.dataloader.dataset.metainfo or {}).get('classes')
        if table := class_table(metrics, classes or ()):
            print('\n'.join(table))
        print(f'metrics: {work_dir / METRICS} (details: {INFO})')
        for what, path in reports:
            if path.exists():  # not for too many classes
                print(f'{what}: {path}')
        if args.show_dir:
            print(f'pictures: {Path(args.show_dir)}')
        if not metrics:
            note('the evaluator returned no metrics; some evaluators do so if the model predicts nothing')
    return 0
