"""Predict on images: pictures with the results painted on, and predictions.json.

An input is an image or a folder of images. predictions.json has, for each image, its file, size, picture and
predictions:

detection: label, class, score, bbox [x1, y1, x2, y2], mask as COCO RLE; classification: the five best.

segmentation: the classes that occur, their pixels and share of the image. <stem>_mask.png is 0 and 255 for models of
two classes (with foreground_share in predictions.json), else the labels; <stem>_probability.png (--probability) is
16-bit grey, the foreground's probability times 65535 (of more than two classes: that of the chosen one). The image goes
through the config's test pipeline as a whole; --slide runs the network in overlapping windows at the image's own
resolution instead, which is for images larger than those of the training, of the same magnification.

Pictures, masks and boxes are of the image as it is displayed: turned upright where EXIF says so. 16-bit images are
read as 8 bits, alpha is left out. An image that cannot be read is named, the others are still done, and the exit code
is 1.
"""
import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..runtime.config import check_writable, load_config
from ..runtime.device import pick_device
from ..runtime.hosts import prepare_hosts
from ..runtime.testing import check_checkpoint
from ..utils.text import note
from .arguments import add_config_arguments

if TYPE_CHECKING:

    pass

SUMMARY = 'predict on images'
SCORE_THRESHOLD = 0.3
SMALLEST_WINDOW = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla infer``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', help='checkpoint (.pth or .safetensors): a path or an http address')
    parser.add_argument('inputs', nargs='+', help='images, or folders of images')
    parser.add_argument('--out-dir', default='predictions', help='folder of the results (default: %(default)s)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1 … (default: a GPU if there is one)')
    parser.add_argument('--batch-size', type=int, default=1,
                        help='images (with --slide: windows) at a time (default: %(default)s)')
    parser.add_argument('--allow-partial', action='store_true',
                        help='predict although the checkpoint fits the model only in part')
    parser.add_argument('--score-thr', type=float,
                        help=f'detection: leave out detections up to this score (default: {SCORE_THRESHOLD})')
    parser.add_argument('--threshold', type=float,
                        help="segmentation of two classes: a higher probability is foreground (default: the config's)")
    parser.add_argument('--probability', action='store_true', help='segmentation: write the probabilities too')
    parser.add_argument('--slide', type=int, metavar='SIZE',
                        help="segmentation: run in windows of SIZE pixels at the image's own resolution")
    parser.add_argument('--stride', type=int, metavar='N',
                        help='pixels from one window to the next (default: half of SIZE)')


def run(args: argparse.Namespace) -> int:
    """Predict; see :func:`add_arguments`."""
    if args.batch_size < 1:
        raise UserError(f'--batch-size must be at least 1, got {args.batch_size}')
    check_segmentation_arguments(args)
    check_checkpoint(args.checkpoint)
    from ..runtime.inputs import find_images
    images = find_images(args.inputs)
    out_dir = Path(args.out_dir)
    for image in images:
        if image.parent.resolve() == out_dir.resolve():
            raise UserError(f'--out-dir {out_dir} is the folder of {image.name}; its pictures would be overwritten')
    check_writable(out_dir, '--out-dir')
    config = load_config(args.config, args.cfg_options)
    if config.get('model') is None:
        raise UserError(f"config {config.filename} has no 'model'")
    host = prepare_hosts(config)

    from ..runtime.inference import PREDICTORS
    from ..runtime.inference.run import predict_all
    from ..utils.files import write_json
    if host not in PREDICTORS or config.get('default_scope') != host:
        raise UserError(f'config {config.filename} is not of mmdet, mmseg or mmpretrain (its default_scope)')
    options = options_for(host, args)
    predictor = PREDICTORS[host](config, args.checkpoint, pick_device(args.device), allow_partial=args.allow_partial,
                                 **options)
    print(f'checkpoint {args.checkpoint}: {predictor.loaded}')
    done, failed = predict_all(predictor, images, out_dir, args.batch_size)
    write_json(out_dir / 'predictions.json',
               dict(config=config.filename, checkpoint=args.checkpoint, classes=predictor.classes,
                    **predictor.settings, images=done, failed=failed))
    print(f'{len(done)} of {len(images)} images: {out_dir / "predictions.json"}')
    if failed:
        print(f'error: {len(failed)} of {len(images)} images could not be read: '
              + ', '.join(entry['file'] for entry in failed[:5]) + (', …' if len(failed) > 5 else ''), file=sys.stderr)
    return 1 if failed else 0


def check_segmentation_arguments(args: argparse.Namespace) -> None:
    """Refuse thresholds and windows that make no sense.

    Raises:
        UserError: naming the option and its value.
    """
    if args.threshold is not None and not 0 < args.threshold < 1:
        raise UserError(f'--threshold is a probability between 0 and 1, got {args.threshold:g}')
    if args.stride is not None and args.slide is None:
        raise UserError('--stride goes with --slide')
    if args.slide is not None and args.slide < SMALLEST_WINDOW:
        raise UserError(f'--slide must be at least {SMALLEST_WINDOW} pixels, got {args.slide}')
    if args.stride is not None and not 1 <= args.stride <= args.slide:
        raise UserError(f'--stride must be from 1 to the window of {args.slide} pixels, got {args.stride}')


def options_for(host: str, args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a host's predictor.

    Raises:
        UserError: an option of segmentation is given for another host.
    """
    if host == 'mmseg':
        if args.score_thr is not None:
            note('--score-thr is for detection; --threshold sets what is foreground')
        return dict(threshold=args.threshold, window=args.slide, stride=args.stride, windows_at_once=args.batch_size,
                    with_probability=args.probability)
    for name in ('threshold', 'slide', 'probability'):
        if getattr(args, name) not in (None, False):
            raise UserError(f'--{name} is for segmentation (mmseg), and this config is of {host}')
    if host == 'mmdet':
        return dict(score_threshold=SCORE_THRESHOLD if args.score_thr is None else args.score_thr)
    if args.score_thr is not None:
        note('--score-thr is for detection; the five best classes are told whatever their scores')
    return {}
