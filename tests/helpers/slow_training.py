"""A training of mmengine's own parts, with steps long enough to send a signal in one of them."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = '''
import os, time
import torch
from torch import nn
from mmengine.dist import get_rank
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS

@MODELS.register_module(force=True)
class Line(BaseModel):
    """y = ax + b; announces each step."""
    def __init__(self, seconds=0.1):
        super().__init__()
        self.line, self.seconds = nn.Linear(2, 1), seconds
    def forward(self, inputs, mode='tensor'):
        print(f'rank {get_rank()}: {mode}', flush=True)
        time.sleep(self.seconds)
        error = (self.line(inputs) - 2 * inputs.sum(1, keepdim=True)).square()
        return dict(loss=error.mean()) if mode == 'loss' else list(error)

@DATASETS.register_module(force=True)
class Points(torch.utils.data.Dataset):
    metainfo = {}
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if seconds := float(os.environ.get('SLOW_LOADING', 0)):
            print('loading', flush=True)
            time.sleep(seconds)
        return dict(inputs=torch.tensor([index / 8, 1.]))

@METRICS.register_module(force=True)
class Error(BaseMetric):
    default_prefix = 'toy'
    def process(self, data_batch, data_samples):
        self.results += [float(sample) for sample in data_samples]
    def compute_metrics(self, results):
        return dict(error=sum(results) / len(results))
'''
CONFIG = '''
custom_imports = dict(imports=['slow_parts'])
model = dict(type='Line', seconds={seconds})
train_dataloader = dict(batch_size=2, num_workers={workers}, dataset=dict(type='Points'),
                        sampler=dict(type='{sampler}', shuffle=True), collate_fn=dict(type='default_collate'))
val_dataloader = dict(batch_size=2, num_workers=0, dataset=dict(type='Points'),
                      sampler=dict(type='DefaultSampler', shuffle=False), collate_fn=dict(type='default_collate'))
val_evaluator = dict(type='Error')
val_cfg = dict()
test_dataloader, test_evaluator, test_cfg = val_dataloader, val_evaluator, dict()
train_cfg = {train_cfg}
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.01, momentum=0.9){accumulate})
param_scheduler = []
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval={interval}, by_epoch={by_epoch}))
randomness = dict(seed=0)
'''


def write_training(folder: Path, by_epoch: bool = True, length: int = 50, seconds: float = 0.1, interval: int = 1,
                   val: int = 100, workers: int = 0, counts: int = 1) -> Path:
    """Write ``folder/slow.py``: epochs of four steps, or ``length`` iterations."""
    (folder / 'slow_parts.py').write_text(PARTS)
    train_cfg = f'dict(by_epoch={by_epoch}, max_{"epochs" if by_epoch else "iters"}={length}, val_interval={val})'
    (folder / 'slow.py').write_text(CONFIG.format(
        seconds=seconds, workers=workers, train_cfg=train_cfg, interval=interval, by_epoch=by_epoch,
        sampler='DefaultSampler' if by_epoch else 'InfiniteSampler',
        accumulate=f', accumulative_counts={counts}' if counts > 1 else ''))
    return folder / 'slow.py'


def _hear_interrupts() -> None:
    """A shell starts background jobs, such as a run of these tests, with SIGINT ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(folder: Path, *arguments: str, processes: int = 0, torchrun: tuple[str, ...] = (), **environment: str):
    """Start ``mmkcla`` in ``folder``; stdout and stderr are one stream of lines."""
    launcher = ['-m', 'torch.distributed.run', '--standalone', f'--nproc-per-node={processes}', *torchrun]
    command = [sys.executable, *(launcher if processes else []), '-m', 'mmkcla', *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            preexec_fn=_hear_interrupts,
                            env=os.environ | {'OMP_NUM_THREADS': '1', 'PYTHONPATH': str(ROOT)} | environment)


def wait_for(process: subprocess.Popen, text: str, count: int = 1, seconds: float = 120) -> list[str]:
    """Read lines until ``count`` of them contain ``text``."""
    lines, end = [], time.monotonic() + seconds
    while count and time.monotonic() < end:
        line = process.stdout.readline()
        assert line, f'ended without {text!r}: {"".join(lines)[-3000:]}'
        lines.append(line)
        count -= text in line
    assert not count, ''.join(lines)[-3000:]
    return lines


def stop(process: subprocess.Popen, number: signal.Signals, seconds: float = 60) -> tuple[int, list[str]]:
    """Send a signal, and return the exit code and the remaining lines."""
    process.send_signal(number)
    rest, _ = process.communicate(timeout=seconds)
    return process.returncode, rest.splitlines()


def children(process: subprocess.Popen) -> list[int]:
    """Process ids of the children: the ranks of torchrun, or data-loader workers."""
    return [int(number) for path in Path(f'/proc/{process.pid}/task').glob('*/children')
            for number in path.read_text().split()]
