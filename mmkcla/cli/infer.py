"""Predict on images: pictures with the results painted on, and predictions.json.

An input is an image or a folder of images. predictions.json has, for each image, its file, size and predictions
(detection: label, class, score, bbox [x1, y1, x2, y2], mask as COCO RLE; segmentation: the classes that occur and the
PNG of the labels; classification: the five best). An image that cannot be read is named, the others are still done,
and the exit code is 1.
"""
import argparse
import glob
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .common import add_config_arguments, check_writable, load_config, prepare_hosts
from .test import check_checkpoint

if TYPE_CHECKING:
    import torch

    from .predictors import Predictor

SUMMARY = 'predict on images'
EXTENSIONS = ('.jpg', '.jpeg', '.png', '.bmp', '.webp', '.tif', '.tiff')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla infer``."""
    add_config_arguments(parser)
    parser.add_argument('checkpoint', help='checkpoint (.pth or .safetensors): a path or an http address')
    parser.add_argument('inputs', nargs='+', help='images, or folders of images')
    parser.add_argument('--out-dir', default='predictions', help='folder of the results (default: %(default)s)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1 … (default: a GPU if there is one)')
    parser.add_argument('--score-thr', type=float, default=0.3,
                        help='leave out detections up to this score (default: %(default)s)')
    parser.add_argument('--batch-size', type=int, default=1, help='images at a time (default: %(default)s)')
    parser.add_argument('--allow-partial', action='store_true',
                        help='predict although the checkpoint fits the model only in part')


def run(args: argparse.Namespace) -> int:
    """Predict; see :func:`add_arguments`."""
    if args.batch_size < 1:
        raise UserError(f'--batch-size must be at least 1, got {args.batch_size}')
    check_checkpoint(args.checkpoint)
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

    from ..engine.files import write_json
    from .predictors import PREDICTORS
    if host not in PREDICTORS or config.get('default_scope') != host:
        raise UserError(f'config {config.filename} is not of mmdet, mmseg or mmpretrain (its default_scope)')
    predictor = PREDICTORS[host](config, args.checkpoint, pick_device(args.device), args.score_thr, args.allow_partial)
    print(f'checkpoint {args.checkpoint}: {predictor.loaded}')
    done, failed = predict_all(predictor, images, out_dir, args.batch_size)
    write_json(out_dir / 'predictions.json',
               dict(config=config.filename, checkpoint=args.checkpoint, classes=predictor.classes,
                    images=done, failed=failed))
    print(f'{len(done)} of {len(images)} images: {out_dir / "predictions.json"}')
    if failed:
        print(f'error: {len(failed)} of {len(images)} images could not be read: '
              + ', '.join(entry['file'] for entry in failed[:5]) + (', …' if len(failed) > 5 else ''), file=sys.stderr)
    return 1 if failed else 0


def find_images(inputs: list[str]) -> list[Path]:
    """The images that the inputs name: files as they are, folders for the images in them, patterns where no shell did.

    Raises:
        UserError: an input does not exist, or a folder has no images.
    """
    images: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in EXTENSIONS and file.is_file())
            if not inside:
                deeper = next((file.parent for file in path.rglob('*') if file.suffix.lower() in EXTENSIONS), None)
                hint = f'; there are some in {deeper}' if deeper else ''
                raise UserError(f'no images in {path} (looked for {" ".join(EXTENSIONS)}){hint}')
            images += inside
        elif path.is_file():
            images.append(path)
        elif any(mark in name for mark in '*?[') and (matches := sorted(glob.glob(name))):
            images += map(Path, matches)
        else:
            raise UserError(f'no such image or folder: {name}')
    return list(dict.fromkeys(images))


def pick_device(name: str | None) -> 'torch.device':
    """The device called ``name``; without a name, what mmengine finds.

    Raises:
        UserError: no device has that name, or there is none of the kind here.
    """
    import torch
    from mmengine.device import get_device
    try:
        device = torch.device(name or get_device())
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f'--device {name} cannot be used here: {reason}') from error
    return device


def predict_all(predictor: 'Predictor', images: list[Path], out_dir: Path,
                batch_size: int) -> tuple[list[dict], list[dict]]:
    """Predict on ``images`` and write the pictures.

    Returns:
        The entries of the images done, and of those that could not be read (file and reason).
    """
    from tqdm import tqdm

    from .predictors import write_image
    done: list[dict] = []
    failed: list[dict] = []
    names = picture_names(images)
    batch: list[tuple[Path, Any, dict]] = []
    with tqdm(total=len(images), unit='image', disable=None) as progress:
        for path in [*images, None]:
            if path is not None:
                try:
                    batch.append((path, *predictor.load(path)))
                except UserError as error:
                    failed.append(dict(file=str(path), reason=str(error)))
                    print(f'error: {error}', file=sys.stderr)
                    progress.update()
            if len(batch) == batch_size or path is None and batch:
                samples = predictor.predict([data for _, _, data in batch])
                for (file, image, _), sample in zip(batch, samples, strict=True):
                    picture = names[file]
                    height, width = image.shape[:2]
                    record = predictor.record(sample, out_dir, Path(picture).stem)
                    write_image(out_dir / picture, predictor.draw(image, sample))
                    done.append(dict(file=str(file), width=width, height=height, picture=picture, predictions=record))
                progress.update(len(batch))
                batch = []
    return done, failed


def picture_names(images: list[Path]) -> dict[Path, str]:
    """A name for each image's picture: its own (JPEG stays JPEG, the rest becomes PNG), numbered where two collide."""
    taken: set[str] = set()
    names = {}
    for path in images:
        suffix = '.jpg' if path.suffix.lower() in ('.jpg', '.jpeg') else '.png'
        stem = next(stem for stem in _numbered(path.stem) if stem not in taken)
        taken.add(stem)
        names[path] = stem + suffix
    return names


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f'{stem}_{number}'
        number += 1
