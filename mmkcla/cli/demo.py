"""Run an end-to-end demo on a CPU with real images: prepare a data set, train, evaluate, draw predictions.

detection: KCLA Faster R-CNN and KCLA Mask R-CNN on the scikit-image photograph of 24 coins.
segmentation: a small KCLA U-Net on the foreground of that photograph, converted from the layout of ISIC 2017.
classification: KCLA ResNet-20 on the 1,797 handwritten digits of scikit-learn.

The results are written to work_dirs/demo/<config>: curves.png, metrics.json, pictures/.
"""
import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..runtime.processes import run_process

SUMMARY = 'train and evaluate on images shipped with scikit-image and scikit-learn'


@dataclass(frozen=True)
class Demo:
    """A demo: ``prepare()`` the data, then train, test and draw predictions with each config."""

    prepare: Callable[[], str]
    images: str | None  # images for ``infer``
    expected: dict[str, dict[str, float]]  # config -> metric -> minimum
    infer: tuple[str, ...] = ()  # options of ``infer``
    evaluation: str | None = None  # config key of the metric's output folder


def _prepare_coins() -> str:
    from ..datasets.detection import coins
    return coins.convert('data/coins')


def _prepare_coin_masks() -> str:
    from ..datasets.segmentation import samples
    from ..datasets.segmentation.converters import isic
    raw = samples.make_samples('data/raw/coins_isic2017')
    return f'{raw}\n{isic.convert_isic2017("data/raw/coins_isic2017", "data/coins_isic2017").text}'


def _prepare_digits() -> str:
    from ..datasets.classification.digits import DigitsDataset
    return ', '.join(f'{len(DigitsDataset(split))} scans of digits to {split}' for split in ('train', 'test'))


DEMOS = {
    'detection': Demo(_prepare_coins, 'data/coins/val2017', {
        'demo/faster-rcnn_r18-kcla_fpn_coins.py': {'coco/bbox_mAP_50': 0.8},
        'demo/mask-rcnn_r18-kcla_fpn_coins.py': {'coco/bbox_mAP_50': 0.8, 'coco/segm_mAP_50': 0.8},
    }, infer=('--score-thr', '0.5')),
    'segmentation': Demo(_prepare_coin_masks, 'data/coins_isic2017/images/test', {
        'demo/unet-kcla-small_coins.py': {'DSC_pooled': 0.9},
    }, evaluation='test_evaluator.out_dir'),
    'classification': Demo(_prepare_digits, None, {'demo/kcla-resnet20_digits.py': {'accuracy/top1': 97.}}),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla demo``."""
    parser.add_argument('name', nargs='?', choices=sorted(DEMOS), default='detection',
                        help='demo to run (default: %(default)s)')
    parser.add_argument('--work-dir', default='work_dirs/demo', help='output folder (default: %(default)s)')


def run(args: argparse.Namespace) -> int:
    """Run a demo; the exit code is 1 if a metric is below its expected minimum."""
    demo = DEMOS[args.name]
    print(demo.prepare(), flush=True)
    lines, good = [], True
    for config, expected in demo.expected.items():
        folder = Path(args.work_dir) / Path(config).stem
        started = time.monotonic()
        _mmkcla('train', config, '--work-dir', str(folder))
        minutes = (time.monotonic() - started) / 60
        checkpoint = (folder / 'last_checkpoint').read_text(encoding='utf-8').strip()
        options = ['--cfg-options', f'{demo.evaluation}={folder / "evaluation"}'] if demo.evaluation else []
        _mmkcla('test', config, checkpoint, '--work-dir', str(folder), *options)
        if demo.images:
            _mmkcla('infer', config, checkpoint, demo.images, '--out-dir', str(folder / 'pictures'), *demo.infer)
        metrics = json.loads((folder / 'metrics.json').read_text(encoding='utf-8'))
        for metric, least in expected.items():
            good &= metrics[metric] >= least
            lines.append(f'{Path(config).stem}: {metric} {metrics[metric]:.3f} (expected at least {least:g}), '
                         f'trained in {minutes:.1f} minutes, see {folder}')
    print('\n' + '\n'.join(lines))
    return 0 if good else 1


def _mmkcla(*arguments: str) -> None:
    """Run a sub-command in a subprocess, since mmengine keeps loggers and visualizers for the life of a process."""
    print(f'\n$ mmkcla {" ".join(arguments)}', flush=True)
    code, _ = run_process([sys.executable, '-m', 'mmkcla', *arguments])
    if code:
        raise UserError(f'mmkcla {arguments[0]} failed with exit code {code}; see its output above')
