"""Train and test a config with several seeds, and tell mean and standard deviation.

Each seed is trained and tested in processes of its own, in <work-dir>/seed_<N>, the best checkpoint of its validation
(save_best in the config) or else the last one on the test set. <work-dir>/results.csv and results.md have the metrics
of each seed, their mean and their sample standard deviation (n - 1), the seeds of earlier calls with the same training
and test among them. Started again, it goes on where it was: finished
seeds stay as they are, half-done ones are resumed, and a folder of another config is refused. A seed that fails is
reported, the others go on, and the exit code is 1.
"""
import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..runtime.config import LAUNCHERS, add_config_arguments, check_writable, load_config, note, require_parts
from .train import find_resumable

if TYPE_CHECKING:
    from mmengine.config import Config

    from ..runtime.seeds import SeedFolder, SeedResult

SUMMARY = 'train and test with several seeds; mean and standard deviation'
_PATIENCE = 30  # seconds for a process to end after it was told to


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla seeds``."""
    add_config_arguments(parser)
    add_seed_arguments(parser)
    parser.add_argument('--work-dir', help='folder of the seeds and results (default: work_dirs/<config>)')


def add_seed_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``mmkcla seeds`` and ``mmkcla sweep`` share."""
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


def run(args: argparse.Namespace) -> int:
    """Train and test all seeds; see :func:`add_arguments`."""
    results, notes = run_all(args)
    if args.dry_run:
        return 0
    config = load_config(args.config, args.cfg_options)
    return report(work_dir_of(args, config), Path(config.filename).stem, results, notes)


def work_dir_of(args: argparse.Namespace, config: 'Config') -> Path:
    """The folder of the seeds: the argument, else the config's, else ``work_dirs/<config>``."""
    return Path(args.work_dir or config.get('work_dir') or Path('work_dirs') / Path(config.filename).stem)


def run_all(args: argparse.Namespace) -> 'tuple[list[SeedResult], list[str]]':
    """Train and test what is not done yet, keeping ``results.csv`` and ``results.md`` up to date.

    Returns:
        What came of each seed (pending all of them in a dry run), then of the seeds of other calls that are done with
        the same training and test; and notes for the report.
    """
    check_arguments(args)
    config = load_config(args.config, args.cfg_options)
    require_parts(config, ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper', 'test_dataloader',
                           'test_evaluator', 'test_cfg'), 'trained and tested')
    if args.launcher != 'none' and args.gpus is None:
        args.gpus = _devices()

    from ..runtime.seeds import SeedFolder, SeedResult, fingerprint, other_seeds, test_parts, training_parts
    work_dir = work_dir_of(args, config)
    training = training_parts(config, amp=args.amp, auto_scale=args.auto_scale_lr,
                              processes=args.gpus if args.launcher != 'none' else None)
    test = fingerprint(test_parts(config, training=fingerprint(training), checkpoint=args.checkpoint, tta=args.tta))
    folders = [SeedFolder(work_dir, seed) for seed in args.seeds]
    for folder in folders:
        if folder.record or not args.test_only:
            folder.check(training)
    if (sampler := config.train_dataloader.get('sampler') or {}).get('seed') is not None:
        note(f'train_dataloader.sampler.seed is {sampler["seed"]} in the config: every seed sees the images in the '
             'same order')
    if args.dry_run:
        for folder in folders:
            print('\n'.join(plan(args, config, folder, test)))
        return [SeedResult(folder.seed) for folder in folders], []

    check_writable(work_dir, '--work-dir')
    results = [folder.result() if folder.tested(test) and not args.test_only else SeedResult(folder.seed)
               for folder in folders]
    others = [folder.result() for folder in other_seeds(work_dir, args.seeds) if folder.tested(test)]
    kind = 'best' if args.checkpoint == 'best' and _save_best(config) else 'last'
    notes = [f'config {args.config}' + (f' --cfg-options {shlex.join(args.cfg_options)}' if args.cfg_options else ''),
             f'test: {"test-time augmentation" if args.tta else "plain"}, {kind} checkpoint',
             f'fingerprints: training {fingerprint(training)}, test {test}']
    with stopping_in_order():
        for number, (folder, result) in enumerate(zip(folders, results, strict=True), start=1):
            if result.status == 'done':
                print(f'seed {folder.seed} ({number} of {len(folders)}): done before', flush=True)
                continue
            print(f'seed {folder.seed} ({number} of {len(folders)}): {folder.path}', flush=True)
            try:
                run_seed(args, config, folder, training, test, result)
            except UserError as error:
                result.status = ' '.join(str(error).split())
                print(f'error: seed {folder.seed}: {result.status}', file=sys.stderr)
            write_results(work_dir, Path(config.filename).stem, [*results, *others], notes)
    return [*results, *others], notes


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is read.

    Raises:
        UserError: naming the option.
    """
    for seed in args.seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f'--seeds: a seed is from 0 to 4294967295, got {seed}')
        if args.seeds.count(seed) > 1:
            raise UserError(f'--seeds: {seed} is given more than once')
    if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:
        raise UserError('start it alone, not under torchrun: with --launcher pytorch --gpus N it starts torchrun for '
                        'each training')
    if args.gpus is not None and args.launcher == 'none':
        raise UserError('--gpus goes with --launcher (pytorch, on one machine)')
    if args.gpus is not None and args.gpus < 1:
        raise UserError(f'--gpus must be at least 1, got {args.gpus}')


def run_seed(args: argparse.Namespace, config: 'Config', folder: 'SeedFolder', training: dict, test: str,
             result: 'SeedResult') -> None:
    """Train a seed to its end if need be, test it, and fill in ``result``.

    Raises:
        UserError: a process failed, or there is nothing to test.
    """
    if args.test_only:
        if folder.record and not folder.trained:
            raise UserError(f'the training in {folder.path} has not come to its end; start without --test-only')
        if not folder.has_checkpoints():
            raise UserError(f'no checkpoints in {folder.path}')
    elif not folder.trained:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.update(trained=False, training=training)
        _run(train_command(args, folder), 'training')
        folder.update(trained=True)
    checkpoint = choose_checkpoint(folder.path, _save_best(config), args.checkpoint)
    if checkpoint is None:
        raise UserError(f'the training left no checkpoint in {folder.path}')
    if folder.record:
        folder.update(test=None)  # the metrics that are there are not of this test
    _run(test_command(args, folder, str(checkpoint)), 'test')
    if not folder.metrics:
        raise UserError(f'the test left no metrics in {folder.path}')
    if folder.record:  # what was trained by hand gets none: it is not known to be of this config
        folder.update(test=test, checkpoint=checkpoint.name)
    result.status, result.checkpoint, result.metrics = 'done', checkpoint.name, folder.metrics


def train_command(args: argparse.Namespace, folder: 'SeedFolder') -> list[str]:
    """The training of a seed, resumed if it has begun."""
    return [*_launched(args), 'train', args.config, '--seed', str(folder.seed), '--work-dir', str(folder.path),
            *(['--resume'] if folder.has_checkpoints() else []),
            *(['--amp'] if args.amp else []), *(['--auto-scale-lr'] if args.auto_scale_lr else []), *_common(args)]


def test_command(args: argparse.Namespace, folder: 'SeedFolder', checkpoint: str) -> list[str]:
    """The test of a checkpoint."""
    return [*_launched(args), 'test', args.config, checkpoint, '--work-dir', str(folder.path),
            *(['--tta'] if args.tta else []), *_common(args)]


def _launched(args: argparse.Namespace) -> list[str]:
    processes = str(args.gpus)
    return {
        'none': [sys.executable],
        'pytorch': [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', processes],
        'slurm': ['srun', '--kill-on-bad-exit=1', '--ntasks', processes, sys.executable],
        'mpi': ['mpirun', '-np', processes, sys.executable],
    }[args.launcher] + ['-m', 'mmkcla']


def _common(args: argparse.Namespace) -> list[str]:
    return [*(['--launcher', args.launcher] if args.launcher != 'none' else []),
            *(['--no-checks'] if args.no_checks else []),
            *(['--cfg-options', *args.cfg_options] if args.cfg_options else [])]


def plan(args: argparse.Namespace, config: 'Config', folder: 'SeedFolder', test: str) -> list[str]:
    """What would be run for a seed, as lines for a shell (the name of a checkpoint to come as a pattern)."""
    if folder.tested(test) and not args.test_only:
        return [f'# seed {folder.seed}: done before']
    lines = [f'# seed {folder.seed}']
    checkpoint = None
    if args.test_only or folder.trained:
        checkpoint = choose_checkpoint(folder.path, _save_best(config), args.checkpoint)
    else:
        lines.append(shlex.join(train_command(args, folder)))
    pattern = 'best_*.pth' if _save_best(config) and args.checkpoint == 'best' else '(last checkpoint)'
    return [*lines, shlex.join(test_command(args, folder, str(checkpoint or folder.path / pattern)))]


def choose_checkpoint(folder: Path, save_best: str | None, which: str) -> Path | None:
    """The checkpoint to test.

    Args:
        folder: the seed's.
        save_best: the metric by which the training kept its best checkpoint; None: it did not.
        which: ``'best'`` or ``'last'``.

    Returns:
        The best one as the last one names it (a crash may leave others that look like it behind); where there is none,
        the last one; None without any.
    """
    last = find_resumable(folder)
    if which == 'last' or not save_best:
        return last
    named: list[Path] = []
    if last is not None:
        from ..weights.reading import read_checkpoint
        known = (read_checkpoint(last).get('message_hub') or {}).get('runtime_info') or {}
        recorded = known.get(f'best_ckpt_{save_best}') or known.get('best_ckpt')
        named = [folder / Path(recorded).name, Path(recorded)] if recorded else []
    metric = '*' if save_best == 'auto' else save_best.replace('/', '_')
    by_name = sorted(folder.glob(f'best_{metric}_*.pth'), key=lambda path: path.stat().st_mtime, reverse=True)
    best = next((path for path in [*named, *by_name] if path.is_file()), None)
    if best is None and last is not None:
        note(f'no best checkpoint in {folder} (was there a validation?); the last one, {last.name}, is tested')
    return best or last


def _save_best(config: 'Config') -> str | None:
    """The metric of the config's ``save_best``; the first one of several."""
    wanted = ((config.get('default_hooks') or {}).get('checkpoint') or {}).get('save_best')
    return (wanted[0] if wanted else None) if isinstance(wanted, (list, tuple)) else wanted


def _devices() -> int:
    import torch
    if count := torch.cuda.device_count():
        return count
    raise UserError('--launcher needs --gpus N here: the number of processes (torch finds no GPU)')


def _run(command: list[str], what: str) -> None:
    """Run a part of the work.

    Raises:
        UserError: it failed; with its own error line.
    """
    print(f'$ {shlex.join(command)}', flush=True)
    code, last_line = run_process(command)
    if code:
        how = f'exit code {code}' if code > 0 else f'signal {signal.Signals(-code).name}'
        raise UserError(f'{what} failed ({how})' + (f': {last_line.removeprefix("error: ")}' if last_line else ''))


def run_process(command: list[str]) -> tuple[int, str]:
    """Run a command to its end, this package importable in it.

    Returns:
        Its exit code, and of what it wrote on stderr (which is passed on) the last ``error:`` line, or else the last.
    """
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get('PYTHONPATH')]))
    error_line = last_line = ''
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | {'PYTHONPATH': path})
    except OSError as error:
        return 127, f'cannot start {command[0]}: {error.strerror}'
    try:
        for raw in process.stderr:
            line = raw.decode('utf-8', 'replace')
            sys.stderr.write(line)
            sys.stderr.flush()
            last_line = line.strip() or last_line
            if line.startswith('error'):
                error_line = line.strip()
        return process.wait(), error_line or last_line
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stderr.close()


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """While the block runs, SIGTERM stops it as Ctrl-C does, and the process that trains with it; either says how to
    go on."""
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    alone = threading.current_thread() is not threading.main_thread()
    before = None if alone else signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt('the same command goes on') from None
    finally:
        if not alone:
            signal.signal(signal.SIGTERM, before)


def write_results(work_dir: Path, name: str, results: 'list[SeedResult]', notes: list[str]) -> None:
    """Write ``results.csv`` and ``results.md``, each whole."""
    from ..runtime.seeds import REPORT, TABLE, write_report, write_table
    write_table(work_dir / TABLE, results)
    write_report(work_dir / REPORT, name, results, notes)


def report(work_dir: Path, name: str, results: 'list[SeedResult]', notes: list[str]) -> int:
    """Write and print the results.

    Returns:
        The exit code: 1 if a seed failed.
    """
    from ..runtime.seeds import REPORT, TABLE, digits_for, summarise, told
    write_results(work_dir, name, results, notes)
    failed = [result.seed for result in results if result.failed]
    print()
    for metric, summary in summarise(results).items():
        digits = digits_for([result.metrics.get(metric) for result in results])
        print(f'{metric}: {told(summary, digits)} (n = {summary.count})')
    print(f'results: {work_dir / TABLE}, {work_dir / REPORT}')
    if failed:
        print(f'error: {len(failed)} of {len(results)} seeds failed: {", ".join(map(str, failed))}', file=sys.stderr)
    return 1 if failed else 0
