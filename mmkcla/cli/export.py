"""Export a trained model for programs without OpenMMLab, and check the file on a real image.

onnx          run by onnxruntime and many other programs
torch-export  a .pt2 file, run by PyTorch alone: torch.export.load(FILE).module()

The input is a batch of images (B, 3, H, W), float32, RGB, values 0 to 255, resized as in the test pipeline; the
normalisation is part of the file. Outputs: class probabilities (B, K) of classifiers, probabilities of each pixel
(B, K, H, W) of segmentors, or with --part features the feature maps of backbone and neck. Detectors select their boxes
in Python, so only their features can be exported.

Batch and image size stay free as far as the model allows. Before the file is published, its outputs are compared with
those of PyTorch and of the host library, for one image, three images, and another size; a difference above 1e-4 is an
error. FILE.json describes input, outputs, classes and the differences.
"""
import argparse
from pathlib import Path

from ..errors import UserError
from ..runtime.config import check_writable, load_config
from ..runtime.device import pick_device
from ..runtime.hosts import prepare_hosts
from ..runtime.run_folder import checkpoint_of_run, folder_of_run, required_checkpoint
from ..runtime.testing import check_checkpoint, check_readable
from .arguments import CHECKPOINT_HELP, add_config_arguments

SUMMARY = 'export a model as ONNX or torch.export file'
FORMATS = ('onnx', 'torch-export')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mmkcla export``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', nargs='?', help=CHECKPOINT_HELP)
    parser.add_argument('--format', choices=FORMATS, default='onnx', help='format of the file (default: %(default)s)')
    parser.add_argument('--out', metavar='FILE', help='file to write (default: exported/<config>.onnx or .pt2)')
    parser.add_argument('--part', choices=('model', 'features'), default='model',
                        help='the complete model, or backbone and neck (default: %(default)s)')
    parser.add_argument('--image', metavar='FILE',
                        help='image to check the file with (default: the first of the test data, or a photograph of '
                             'scikit-image)')
    parser.add_argument('--fixed-size', action='store_true',
                        help='export for one image of the size of the test pipeline')
    parser.add_argument('--allow-partial', action='store_true',
                        help='export even if the checkpoint matches the model only partially')


def run(args: argparse.Namespace) -> int:
    """Export; see :func:`add_arguments`."""
    check_checkpoint(required_checkpoint(args.config, args.checkpoint))
    config = load_config(args.config, args.cfg_options)
    if config.get('model') is None:
        raise UserError(f"config {config.filename} has no 'model'")
    if args.checkpoint is None:
        args.checkpoint = checkpoint_of_run(folder_of_run(args.config), config)
    else:
        check_readable(args.checkpoint)
    host = prepare_hosts(config)
    from ..runtime.export import EXTENSIONS, export_model
    from ..runtime.inference import PREDICTORS
    if host not in PREDICTORS or config.get('default_scope') != host:
        raise UserError(f'config {config.filename} has no default_scope of mmdet, mmseg or mmpretrain')
    out = Path(args.out or Path('exported', Path(config.filename).stem + EXTENSIONS[args.format]))
    if out.suffix != EXTENSIONS[args.format]:
        raise UserError(f'--out {out}: files of --format {args.format} end with {EXTENSIONS[args.format]}')
    check_writable(out.parent, '--out')
    from ..runtime.export.images import check_image
    with check_image(config, args.image) as image:
        predictor = PREDICTORS[host](config, args.checkpoint, pick_device('cpu'), allow_partial=args.allow_partial)
        print(f'checkpoint {args.checkpoint}: {predictor.loaded}')
        exported = export_model(predictor, args.format, out, image, args.part, args.fixed_size)
    print(f'{exported.writer}, input {" × ".join(map(str, exported.input_shape))} ({exported.free}), '
          f'outputs: {", ".join(exported.outputs)}')
    for what, difference in exported.differences.items():
        print(f'  largest difference, {what}: {difference:.1e}')
    print(f'results: {exported.path}, {exported.description}')
    return 0
