"""Run inference on images; write pictures with the predictions drawn, and predictions.json.

Inputs are images or folders of images. predictions.json contains, for each image, its file, size, picture and
predictions:

detection: label, class, score, bbox [x1, y1, x2, y2], mask as COCO RLE.

classification: the five best classes with their scores.

segmentation: the classes that occur, with their number of pixels and share of the image. For two-class models
<stem>_mask.png has values 0 and 255, and predictions.json has foreground_share; otherwise the mask contains the labels.
With --probability, <stem>_probability.png is a 16-bit greyscale image: the foreground probability times 65535 (for more
than two classes, the probability of the predicted class). By default the test pipeline of the config processes the
image as a whole. --slide runs the network on overlapping windows at the original resolution; use it for images that are
larger than the training images but have the same magnification.

Outputs have the names of the images; if the images are in several folders, the outputs are in the same sub-folders.
Pictures, masks and boxes follow the displayed orientation of the image (EXIF orientation applied). 16-bit images are
scaled to 8 bits as in training (docs/own-data.md); the alpha channel is ignored. Images that cannot be read or
processed are reported and skipped, and the exit code is then 1.
"""
import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..runtime.checks import check_keys
from ..runtime.checks.effects import unread_options
from ..runtime.config import check_writable, load_config
from ..runtime.device import pick_device
from ..runtime.hosts import prepare_hosts
from ..runtime.run_folder import checkpoint_of_run, folder_of_run, required_checkpoint, split_checkpoint
from ..runtime.testing import check_checkpoint
from ..utils.text import note
from .arguments import CHECKPOINT_HELP, add_config_arguments

if TYPE_CHECKING:

    pass

SUMMARY = 'run inference on images'
SCORE_THRESHOLD = 0.3
SMALLEST_WINDOW = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla infer``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', nargs='?', help=CHECKPOINT_HELP)
    parser.add_argument('inputs', nargs='+', help='images or folders of images')
    parser.add_argument('--out-dir', default='predictions', help='output folder (default: %(default)s)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1 … (default: a GPU if there is one)')
    parser.add_argument('--batch-size', type=int, default=1,
                        help='images (with --slide: windows) per batch (default: %(default)s)')
    parser.add_argument('--allow-partial', action='store_true',
                        help='predict even if the checkpoint matches the model only partially')
    parser.add_argument('--score-thr', type=float,
                        help=f'detection: minimum score, exclusive (default: {SCORE_THRESHOLD})')
    parser.add_argument('--threshold', type=float,
                        help='two-class segmentation: probability above which a pixel is foreground (default: from the '
                             'config)')
    parser.add_argument('--probability', action='store_true', help='segmentation: also write the probabilities')
    parser.add_argument('--slide', type=int, metavar='SIZE',
                        help='segmentation: run on windows of SIZE×SIZE pixels at the original resolution')
    parser.add_argument('--stride', type=int, metavar='N',
                        help='stride of the windows, in pixels (default: half of SIZE)')


def run(args: argparse.Namespace) -> int:
    """Run inference; see :func:`add_arguments`."""
    if args.batch_size < 1:
        raise UserError(f'--batch-size must be at least 1, got {args.batch_size}')
    check_segmentation_arguments(args)
    args.checkpoint, args.inputs = split_checkpoint(args.config, args.checkpoint, args.inputs)
    check_checkpoint(required_checkpoint(args.config, args.checkpoint))
    from ..runtime.inputs import find_images
    images = find_images(args.inputs)
    out_dir = Path(args.out_dir)
    for image in images:
        if image.parent.resolve() == out_dir.resolve():
            raise UserError(f'--out-dir {out_dir} contains the input {image.name}, which could be overwritten; '
                            'choose another folder')
    check_writable(out_dir, '--out-dir')
    config = load_config(args.config, args.cfg_options)
    if config.get('model') is None:
        raise UserError(f"config {config.filename} has no 'model'")
    if args.checkpoint is None:
        args.checkpoint = checkpoint_of_run(folder_of_run(args.config), config)
    host = prepare_hosts(config)
    check_keys(config)
    for line in unread_options('infer', args.cfg_options):
        note(line)

    from ..runtime.inference import PREDICTORS
    from ..runtime.inference.run import predict_all
    from ..utils.files import write_json
    if host not in PREDICTORS or config.get('default_scope') != host:
        raise UserError(f'config {config.filename} has no default_scope of mmdet, mmseg or mmpretrain')
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
        print(f'error: {len(failed)} of {len(images)} images could not be processed: '
              + ', '.join(entry['file'] for entry in failed[:5]) + (', …' if len(failed) > 5 else ''), file=sys.stderr)
    return 1 if failed else 0


def check_segmentation_arguments(args: argparse.Namespace) -> None:
    """Validate the threshold and the windows.

    Raises:
        UserError: an invalid option, with its name and value.
    """
    if args.threshold is not None and not 0 < args.threshold < 1:
        raise UserError(f'--threshold must be a probability between 0 and 1, got {args.threshold:g}')
    if args.stride is not None and args.slide is None:
        raise UserError('--stride needs --slide')
    if args.slide is not None and args.slide < SMALLEST_WINDOW:
        raise UserError(f'--slide must be at least {SMALLEST_WINDOW} pixels, got {args.slide}')
    if args.stride is not None and not 1 <= args.stride <= args.slide:
        raise UserError(f'--stride must be between 1 and the window size of {args.slide} pixels, got {args.stride}')


def options_for(host: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of a host's predictor.

    Raises:
        UserError: a segmentation option is used with another host.
    """
    if host == 'mmseg':
        if args.score_thr is not None:
            note('--score-thr is for detection and is ignored; use --threshold for segmentation')
        return dict(threshold=args.threshold, window=args.slide, stride=args.stride, windows_at_once=args.batch_size,
                    with_probability=args.probability)
    for name in ('threshold', 'slide', 'probability'):
        if getattr(args, name) not in (None, False):
            raise UserError(f'--{name} is for segmentation (mmseg), but the config is for {host}')
    if host == 'mmdet':
        return dict(score_threshold=SCORE_THRESHOLD if args.score_thr is None else args.score_thr)
    if args.score_thr is not None:
        note('--score-thr is for detection and is ignored; the five best classes are always reported')
    return {}
