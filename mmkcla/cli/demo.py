"""Show that everything works, on real photographs and on a CPU: make a data set, train, evaluate, draw.

detection: a KCLA Faster R-CNN and a KCLA Mask R-CNN on scikit-image's photograph of 24 coins. The results of each
training go to work_dirs/demo/<config>: curves.png, metrics.json and pictures/.
"""
import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

SUMMARY = 'train and evaluate on photographs that come with the packages'


@dataclass(frozen=True)
class Demo:
    """What one demo does: ``prepare()`` the data, then train, test and draw each config."""

    prepare: Callable[[], str]
    images: str
    expected: dict[str, dict[str, float]]  # config -> metric -> at least


def _prepare_coins() -> str:
    from ..datasets.converters import coins
    return coins.convert('data/coins')


DEMOS = {
    'detection': Demo(_prepare_coins, 'data/coins/val2017', {
        'demo/faster-rcnn_r18-kcla_fpn_coins.py': {'coco/bbox_mAP_50': 0.8},
        'demo/mask-rcnn_r18-kcla_fpn_coins.py': {'coco/bbox_mAP_50': 0.8, 'coco/segm_mAP_50': 0.8},
    }),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla demo``."""
    parser.add_argument('name', nargs='?', choices=sorted(DEMOS), default='detection',
                        help='which one (default: %(default)s)')
    parser.add_argument('--work-dir', default='work_dirs/demo', help='where the results go (default: %(default)s)')


def run(args: argparse.Namespace) -> int:
    """Run a demo; the exit code is 1 if a metric stays below what is expected."""
    demo = DEMOS[args.name]
    print(demo.prepare(), flush=True)
    lines, good = [], True
    for config, expected in demo.expected.items():
        folder = Path(args.work_dir) / Path(config).stem
        started = time.monotonic()
        _mmkcla('train', config, '--work-dir', str(folder))
        minutes = (time.monotonic() - started) / 60
        checkpoint = (folder / 'last_checkpoint').read_text(encoding='utf-8').strip()
        _mmkcla('test', config, checkpoint, '--work-dir', str(folder))
        _mmkcla('infer', config, checkpoint, demo.images, '--out-dir', str(folder / 'pictures'), '--score-thr', '0.5')
        metrics = json.loads((folder / 'metrics.json').read_text(encoding='utf-8'))
        for metric, least in expected.items():
            good &= metrics[metric] >= least
            lines.append(f'{Path(config).stem}: {metric} {metrics[metric]:.3f} (expected at least {least:.2f}), '
                         f'trained in {minutes:.1f} minutes, see {folder}')
    print('\n' + '\n'.join(lines))
    return 0 if good else 1


def _mmkcla(*arguments: str) -> None:
    """Run a sub-command in a process of its own: mmengine keeps loggers and visualizers for the life of one."""
    print(f'\n$ mmkcla {" ".join(arguments)}', flush=True)
    code = subprocess.run([sys.executable, '-m', 'mmkcla', *arguments], check=False).returncode
    if code:
        raise UserError(f'mmkcla {arguments[0]} ended with exit code {code}; its messages are above')
