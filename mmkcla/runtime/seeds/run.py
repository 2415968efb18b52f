"""Train and test a config with several seeds, in separate processes."""
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ...utils.text import listed, note, one_line, plural
from ..checks import check_settings
from ..config import check_writable, load_config, require_parts
from ..processes import run_checked, stoppable
from ..run_folder import choose_checkpoint, save_best_metric
from .optimism import optimism
from .records import SeedFolder, SeedResult, fingerprint, other_seeds, test_parts, tested_on, training_parts
from .report import write_results

if TYPE_CHECKING:
    from mmengine.config import Config


@dataclass
class SeedOptions:
    """Options of ``mmkcla seeds``, with the same names."""

    config: str
    seeds: list[int]
    cfg_options: list[str] = field(default_factory=list)
    work_dir: str | None = None
    no_checks: bool = False
    launcher: str = 'none'
    gpus: int | None = None
    amp: bool = False
    auto_scale_lr: bool = False
    tta: bool = False
    checkpoint: str = 'best'
    test_only: bool = False
    dry_run: bool = False


def check_options(options: SeedOptions) -> None:
    """Validate the options before any file is read.

    Raises:
        UserError: an invalid option, with its name and value.
    """
    for seed in options.seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f'--seeds: a seed must be between 0 and 4294967295, got {seed}')
        if options.seeds.count(seed) > 1:
            raise UserError(f'--seeds: {seed} is given more than once')
    if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:
        raise UserError('do not run this command under torchrun; use --launcher pytorch --gpus N, which starts '
                        'torchrun for each training')
    if options.gpus is not None and options.launcher == 'none':
        raise UserError('--gpus needs --launcher (pytorch, on one machine)')
    if options.gpus is not None and options.gpus < 1:
        raise UserError(f'--gpus must be at least 1, got {options.gpus}')


def work_dir_of(options: SeedOptions, config: 'Config') -> Path:
    """Return the folder of the seeds: the argument, else that of the config, else ``work_dirs/<config>``."""
    return Path(options.work_dir or config.get('work_dir') or Path('work_dirs') / Path(config.filename).stem)


@dataclass
class SeedRun:
    """What :func:`run_all` returns.

    Attributes:
        results: of each seed (all pending in a dry run), followed by those of finished seeds of other calls with the
            same training and test.
        notes: for the report.
        test: fingerprint of the training and the test.
        tested_on: see :func:`~.records.tested_on`.
        warning: why the figures are optimistic; empty if no reason is known.
    """

    results: list[SeedResult]
    notes: list[str]
    test: str
    tested_on: dict
    warning: str = ''


def run_all(options: SeedOptions) -> SeedRun:
    """Train and test the seeds that are not done yet, keeping ``results.csv`` and ``results.md`` up to date."""
    check_options(options)
    config = load_config(options.config, options.cfg_options)
    require_parts(config, ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper', 'test_dataloader',
                           'test_evaluator', 'test_cfg'), 'trained and tested')
    check_settings(config)
    if options.launcher != 'none' and options.gpus is None:
        options.gpus = _devices()

    work_dir = work_dir_of(options, config)
    training = training_parts(config, amp=options.amp, auto_scale=options.auto_scale_lr,
                              processes=options.gpus if options.launcher != 'none' else None)
    test = fingerprint(test_parts(config, training=fingerprint(training), checkpoint=options.checkpoint,
                                  tta=options.tta))
    folders = [SeedFolder(work_dir, seed) for seed in options.seeds]
    for folder in folders:
        if folder.record or not options.test_only:
            folder.check(training)
    if (sampler := config.train_dataloader.get('sampler') or {}).get('seed') is not None:
        note(f'train_dataloader.sampler.seed is {sampler["seed"]} in the config: the order of images is the same for '
             'all seeds')
    kind = 'best' if options.checkpoint == 'best' and save_best_metric(config) else 'last'
    warning = optimism(config) if kind == 'best' else ''
    if options.dry_run:
        for folder in folders:
            print('\n'.join(plan(options, config, folder, test)))
        if warning:
            note(warning)
        return SeedRun([SeedResult(folder.seed) for folder in folders], [], test, tested_on(config), warning)

    check_writable(work_dir, '--work-dir')
    for folder in folders:
        folder.set_damaged_metrics_aside()
    results = [folder.result() if folder.tested(test) and not options.test_only else SeedResult(folder.seed)
               for folder in folders]
    found = other_seeds(work_dir, options.seeds)
    others = [folder.result() for folder in found if folder.tested(test)]
    changed = f' --cfg-options {shlex.join(options.cfg_options)}' if options.cfg_options else ''
    notes = [f'config {options.config}{changed}',
             f'test: {"test-time augmentation" if options.tta else "plain"}, {kind} checkpoint',
             f'fingerprints: training {fingerprint(training)}, test {test}']
    notes += [warning] if warning else []
    if other_test := [folder.seed for folder in found if folder.record.get('test') not in (None, test)]:
        notes.append(f'not included, since their test had other settings: {plural(len(other_test), "seed")} '
                     f'({listed(other_test, 8)})')
    with stoppable():
        for number, (folder, result) in enumerate(zip(folders, results, strict=True), start=1):
            if result.status == 'done':
                print(f'seed {folder.seed} ({number} of {len(folders)}): already done, skipped', flush=True)
                continue
            print(f'seed {folder.seed} ({number} of {len(folders)}): {folder.path}', flush=True)
            try:
                run_seed(options, config, folder, training, test, result)
            except UserError as error:
                result.status = one_line(error)
                print(f'error: seed {folder.seed}: {result.status}', file=sys.stderr)
            write_results(work_dir, Path(config.filename).stem, [*results, *others], notes)
    return SeedRun([*results, *others], notes, test, tested_on(config), warning)


def run_seed(options: SeedOptions, config: 'Config', folder: 'SeedFolder', training: dict, test: str,
             result: 'SeedResult') -> None:
    """Train a seed if it is not finished, test it, and fill in ``result``.

    Raises:
        UserError: a process failed, or there is nothing to test.
    """
    if options.test_only:
        if folder.record and not folder.trained:
            raise UserError(f'the training in {folder.path} has not finished; run without --test-only')
        if not folder.has_checkpoints():
            raise UserError(f'no checkpoints in {folder.path}')
    elif not folder.trained:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.update(trained=False, training=training)
        run_checked(train_command(options, folder), 'training')
        folder.update(trained=True)
    checkpoint = choose_checkpoint(folder.path, save_best_metric(config), options.checkpoint)
    if checkpoint is None:
        raise UserError(f'the training wrote no checkpoint to {folder.path}')
    if folder.record:
        folder.update(test=None)  # the existing metrics are not from this test
    run_checked(test_command(options, folder, str(checkpoint)), 'test')
    if not folder.metrics:
        raise UserError(f'the test wrote no metrics to {folder.path}')
    if folder.record:  # manual trainings have no record, since their config is unknown
        folder.update(test=test, checkpoint=checkpoint.name, tested_on=tested_on(config))
    result.status, result.checkpoint, result.metrics = 'done', checkpoint.name, folder.metrics


def train_command(options: SeedOptions, folder: 'SeedFolder') -> list[str]:
    """Return the training command of a seed, with --resume if it has checkpoints."""
    return [*_launched(options), 'train', options.config, '--seed', str(folder.seed), '--work-dir', str(folder.path),
            *(['--resume'] if folder.has_checkpoints() else []),
            *(['--amp'] if options.amp else []), *(['--auto-scale-lr'] if options.auto_scale_lr else []),
            *_common(options)]


def test_command(options: SeedOptions, folder: 'SeedFolder', checkpoint: str) -> list[str]:
    """Return the test command of a checkpoint."""
    return [*_launched(options), 'test', options.config, checkpoint, '--work-dir', str(folder.path), '--per-image',
            *(['--tta'] if options.tta else []), *_common(options)]


def _launched(options: SeedOptions) -> list[str]:
    processes = str(options.gpus)
    return {
        'none': [sys.executable],
        'pytorch': [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', processes],
        'slurm': ['srun', '--kill-on-bad-exit=1', '--ntasks', processes, sys.executable],
        'mpi': ['mpirun', '-np', processes, sys.executable],
    }[options.launcher] + ['-m', 'mmkcla']


def _common(options: SeedOptions) -> list[str]:
    return [*(['--launcher', options.launcher] if options.launcher != 'none' else []),
            *(['--no-checks'] if options.no_checks else []),
            *(['--cfg-options', *options.cfg_options] if options.cfg_options else [])]


def plan(options: SeedOptions, config: 'Config', folder: 'SeedFolder', test: str) -> list[str]:
    """Return the shell commands that a seed would run (with a pattern for a checkpoint that does not exist yet)."""
    if folder.tested(test) and not options.test_only:
        return [f'# seed {folder.seed}: already done']
    lines = [f'# seed {folder.seed}']
    checkpoint = None
    if options.test_only or folder.trained:
        checkpoint = choose_checkpoint(folder.path, save_best_metric(config), options.checkpoint)
    else:
        lines.append(shlex.join(train_command(options, folder)))
    pattern = 'best_*.pth' if save_best_metric(config) and options.checkpoint == 'best' else '(last checkpoint)'
    return [*lines, shlex.join(test_command(options, folder, str(checkpoint or folder.path / pattern)))]


def _devices() -> int:
    import torch
    if count := torch.cuda.device_count():
        return count
    raise UserError('--launcher needs --gpus N, the number of processes, since torch finds no GPU')
