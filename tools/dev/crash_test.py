"""Kill trainings at random moments, resume each at once, and compare the results with those of an uninterrupted run.

    python tools/dev/crash_test.py classification segmentation detection --kills 20

Short trainings of the demo configs, with two worker processes and EMA. A moment is one of: loading (before the first
iteration), step (after an iteration), validation, saving (while a checkpoint is written). The exit code is 1 if a
resume was refused or the results differ.
"""
import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmkcla.cli.demo import DEMOS
from mmkcla.weights.reading import read_checkpoint

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ('time', 'data_time', 'memory', 'eta', 'images/s')  # differ between any two runs
MOMENTS = ('loading', 'step', 'validation', 'saving')
TIMEOUT = 300  # seconds for one run
COMMON = ['train_dataloader.num_workers=2', 'val_dataloader.num_workers=1', 'randomness=dict(seed=7)',
          "custom_hooks=[dict(type='EMAHook')]", 'default_hooks.logger.interval=1',
          'default_hooks.checkpoint.by_epoch=False', 'default_hooks.checkpoint.interval=2']
ITERATIONS = ['train_cfg.max_iters=16', 'train_cfg.val_interval=4', 'train_dataloader.batch_size=2']
RUNS = {  # config, options, last checkpoint
    'classification': ('kcla-resnet20_digits', [
        'train_cfg.max_epochs=2', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=200',
        'val_dataloader.batch_size=100'], 'iter_16.pth'),
    'segmentation': ('unet-kcla-small_coins', ITERATIONS, 'iter_16.pth'),
    'detection': ('faster-rcnn_r18-kcla_fpn_coins', [
        *ITERATIONS, 'val_dataloader.batch_size=2', 'model.backbone.base_channels=16',
        'model.backbone.stem_channels=16', 'model.neck.in_channels=[16,32,64,128]'], 'iter_16.pth'),
}


@dataclass
class Report:
    """What happened in the trainings of one config."""

    kills: Counter = field(default_factory=Counter)  # by moment
    resumes: int = 0
    refused: list[str] = field(default_factory=list)
    finished: int = 0
    differences: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """One paragraph."""
        moments = ', '.join(f'{self.kills[moment]} {moment}' for moment in MOMENTS)
        lines = [f'{name}: {sum(self.kills.values())} kills ({moments}), {self.resumes} resumes, {len(self.refused)} '
                 f'refused, {self.finished} finished trainings, {len(self.differences)} differences']
        return '\n'.join([*lines, *(f'  refused: {line}' for line in self.refused),
                          *(f'  different: {line}' for line in self.differences[:10])])


def crash(name: str, folder: Path, kills: int, rng: random.Random) -> Report:
    """Train a demo config in ``folder`` until it was killed ``kills`` times; compare each finished training."""
    _, _, last = RUNS[name]
    folder.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    os.chdir(folder)
    print(DEMOS[name].prepare(), file=sys.stderr)
    os.chdir(here)
    started = time.monotonic()
    if (error := _run(name, folder, 'whole')) is not None:
        raise SystemExit(f'the uninterrupted training failed: {error}')
    startup = time.monotonic() - started
    expected, report, number = outcome(folder / 'whole', last), Report(), 0
    while sum(report.kills.values()) < kills:
        number += 1
        work_dir = f'killed{number}'
        resumed = False
        while True:
            moment = rng.choice(MOMENTS) if sum(report.kills.values()) < kills else None
            killed, error = _run_and_kill(name, folder, work_dir, moment, rng, startup)
            report.resumes += resumed
            if error is not None:
                report.refused.append(error)
                if len(report.refused) > 3:
                    return report
            elif killed:
                report.kills[moment] += 1
            else:
                break
            resumed = True
        report.finished += 1
        report.differences += differences(expected, outcome(folder / work_dir, last))
    return report


def _command(name: str, work_dir: str) -> list[str]:
    config, options, _ = RUNS[name]
    return [sys.executable, '-m', 'mmkcla', 'train', config, '--work-dir', work_dir, '--resume', '--cfg-options',
            *COMMON, *options]


def _environment() -> dict[str, str]:
    return os.environ | {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'}


def _run(name: str, folder: Path, work_dir: str) -> str | None:
    done = subprocess.run(_command(name, work_dir), cwd=folder, env=_environment(), capture_output=True, text=True,
                          timeout=TIMEOUT, check=False)
    return _error_in(done.stderr) if done.returncode else None


def _run_and_kill(name: str, folder: Path, work_dir: str, moment: str | None, rng: random.Random,
                  startup: float) -> tuple[bool, str | None]:
    """Run the training; kill it at the moment.

    Returns:
        Whether it was killed, and its error if it failed by itself.
    """
    errors = folder / f'{work_dir}.stderr'
    with open(errors, 'w', encoding='utf-8') as stream:
        process = subprocess.Popen(_command(name, work_dir), cwd=folder, env=_environment(), stdout=subprocess.DEVNULL,
                                   stderr=stream)
    end = time.monotonic() + TIMEOUT
    wait = _moments(moment, folder / work_dir, rng, startup)
    while process.poll() is None and time.monotonic() < end:
        if next(wait):
            process.kill()
        time.sleep(0.001 if moment == 'saving' else 0.01)
    if process.poll() is None:
        process.kill()
        process.wait()
        return False, f'no end after {TIMEOUT} s'
    if process.returncode == -9:
        return True, None
    return False, _error_in(errors.read_text(encoding='utf-8')) if process.returncode else None


def _moments(moment: str | None, work_dir: Path, rng: random.Random, startup: float) -> Iterator[bool]:
    """Yield False until the moment, then True."""
    started, logs = time.monotonic(), set(work_dir.glob('*/*.log'))
    if moment == 'loading':
        after = rng.uniform(0, startup / 2)
        while time.monotonic() - started < after or 'train)' in _log(work_dir, logs):
            yield False
        yield True
    if moment == 'saving':
        before = rng.randrange(3)  # files that are written without a kill
        seen: set[Path] = set()
        while moment == 'saving':
            seen |= set(work_dir.glob('.*.pth.*'))
            yield len(seen) > before
    word, count = ('val)', 1) if moment == 'validation' else ('train)', rng.randrange(1, 6))
    while moment is not None and _log(work_dir, logs).count(word) < count:
        yield False
    if moment is not None:
        end = time.monotonic() + rng.uniform(0, 0.2)
        while time.monotonic() < end:
            yield False
        yield True
    while True:
        yield moment is not None


def _log(work_dir: Path, before: set[Path]) -> str:
    return ''.join(path.read_text(errors='replace') for path in set(work_dir.glob('*/*.log')) - before)


def _error_in(text: str) -> str:
    lines = text.strip().splitlines() or ['no output']
    return next((line for line in lines if line.startswith('error')), lines[-1])


def scalars(work_dir: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the logged values of all runs in a work dir by kind and step; later runs replace what was logged after the
    checkpoint they were resumed from."""
    found = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json'), key=lambda one: one.stat().st_mtime_ns):
        for line in path.read_text(encoding='utf-8').splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # cut off by a kill
                row = json.loads(line)
                kind = 'train' if 'lr' in row else 'val'
                found[kind, row['step']] = {name: value for name, value in row.items() if name not in MEASURED}
    return found


def outcome(work_dir: Path, checkpoint: str) -> dict[str, Any]:
    """Return everything of a finished training that must be equal, by name."""
    state = read_checkpoint(work_dir / checkpoint)
    hub = state['message_hub']['log_scalars']
    return {**{name: state.get(name) for name in ('state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers')},
            'random': state['exact_resume'],
            'history': {name: buffer.data for name, buffer in hub.items() if name.split('/')[-1] not in MEASURED},
            'scalars': scalars(work_dir), 'curves': (work_dir / 'curves.csv').read_text(encoding='utf-8'),
            'best': sorted(path.name for path in work_dir.glob('best_*'))}


def differences(one: Any, other: Any, place: str = '') -> list[str]:
    """Return the places at which two nested values are not equal bit for bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        return [found for name in names
                for found in (differences(one[name], other[name], f'{place}.{name}') if name in one and name in other
                              else [f'{place}.{name}: only in one'])]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return [found for number, (a, b) in enumerate(zip(one, other, strict=True))
                for found in differences(a, b, f'{place}.{number}')]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one, other) else [place]
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return [] if np.array_equal(one, other, equal_nan=True) else [place]
    return [] if one == other or (one != one and other != other) else [f'{place}: {str(one)[:60]} {str(other)[:60]}']


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', default=list(RUNS), help=f'any of {", ".join(RUNS)} (default: all)')
    parser.add_argument('--kills', type=int, default=20, help='kills for each (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='of the moments')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/crash_test'), help='default: %(default)s')
    args = parser.parse_args(argv)
    good = True
    for name in args.names:
        if name not in RUNS:
            parser.error(f'{name} is not one of {", ".join(RUNS)}')
        folder = args.work_dir.resolve() / name
        if folder.exists():
            parser.error(f'{folder} exists; remove it, or choose another --work-dir')
        report = crash(name, folder, args.kills, random.Random(args.seed))
        print(report.text(name), flush=True)
        good &= not report.refused and not report.differences
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
