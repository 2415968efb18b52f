"""Analyse a data set and write a config for it: image size, classes, batch size, learning rate, epochs, anchors.

detection       images and COCO annotation files: a Faster R-CNN, or a Mask R-CNN where all objects have masks
classification  a folder of images for each class: a ResNet
segmentation    images and masks: a U-Net

Written to --out: kcla.py (each setting with its reason), plain.py (the same network without layer attention),
samples.png (a dozen images with their labels drawn), fingerprint.json (statistics of the data) and README.md (commands
to train, to compare over seeds and to predict). Nothing is trained. docs/plan.md lists the rules.
"""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.project import Plan

SUMMARY = 'analyse a data set and write a config for it'
_EXAMPLES = {
    'detection': '''\
examples:
  mmkcla plan detection --images data/coco --annotations train.json val.json --out my_project
  mmkcla plan detection --images photos --annotations labels.json --out my_project --device-memory 24''',
    'classification': '''\
examples:
  mmkcla plan classification --images data/flowers --out my_project
  mmkcla plan classification --images data/flowers --out my_project --size small --no-pretrained''',
    'segmentation': '''\
examples:
  mmkcla plan segmentation --images photos --masks masks --out my_project
  mmkcla plan segmentation --images photos --masks masks --classes background,road,car --out my_project''',
}
_PREPARE = ('split', 'groups', 'classes', 'palette', 'num_classes', 'threshold')  # options of convert_folders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla plan``: one sub-command per task."""
    tasks = parser.add_subparsers(dest='task', required=True, metavar='task')
    detection = _add(tasks, 'detection', 'images and COCO annotation files')
    detection.add_argument('--images', nargs='+', required=True, type=Path, metavar='DIR',
                           help='folder of the images (or of folders such as train2017), or one per annotation file')
    detection.add_argument('--annotations', nargs='+', required=True, type=Path, metavar='FILE.json',
                           help='train and val, or train, val and test; a single file is split, with a fifth of its '
                                'images for validation')
    classification = _add(tasks, 'classification', 'a folder of images for each class')
    classification.add_argument('--images', required=True, type=Path, metavar='DIR',
                                help='DIR/<class>/*.jpg, or DIR/train/<class>, DIR/val/<class> and optionally DIR/test')
    segmentation = _add(tasks, 'segmentation', 'images and masks')
    segmentation.add_argument('--images', required=True, type=Path, metavar='DIR', help='folder of the images')
    segmentation.add_argument('--masks', required=True, type=Path, metavar='DIR',
                              help='folder of the masks, named like the images: 0/1, 0/255, labels 0 to K-1, or '
                                   'colours')
    segmentation.add_argument('--classes', metavar='A,B,C',
                              help='class names in label order (default: background,foreground)')
    segmentation.add_argument('--num-classes', type=int, metavar='K', help='masks contain labels 0 to K-1')
    segmentation.add_argument('--palette', type=Path, metavar='FILE',
                              help='class colours: lines name,#rrggbb, or JSON')
    segmentation.add_argument('--threshold', type=int, metavar='N', help='two classes: values above N are foreground')
    segmentation.add_argument('--split', metavar='8:1:1',
                              help='ratio of train, val and test (default: the folders train, val, test, else 8:1:1)')
    segmentation.add_argument('--groups', metavar='G',
                              help='images that must stay in one split, e.g. all of one patient: a file with lines '
                                   'name,group, or a regular expression')


def _add(tasks: argparse._SubParsersAction, name: str, what: str) -> argparse.ArgumentParser:
    task = tasks.add_parser(name, help=what, description=f'Plan for {what}.', epilog=_EXAMPLES[name],
                            formatter_class=argparse.RawDescriptionHelpFormatter)
    task.add_argument('--out', required=True, type=Path, metavar='DIR', help='folder of the project')
    task.add_argument('--overwrite', action='store_true', help='replace an existing project and your changes to it')
    task.add_argument('--size', choices=('small', 'base'),
                      help='network size (default: base for a GPU with at least 8 GiB, else small)')
    task.add_argument('--pretrained', action=argparse.BooleanOptionalAction,
                      help='start from ImageNet weights, downloaded when training starts (default: if available for '
                           'the network)')
    task.add_argument('--device-memory', type=float, metavar='GIB',
                      help="plan for a GPU with this much memory (default: this machine's GPU, else its CPU)")
    return task


def run(args: argparse.Namespace) -> int:
    """Run ``mmkcla plan``."""
    from ..plan.fingerprint import table
    from ..plan.machine import pick_machine
    from ..plan.project import check_free, report, write_project
    check_free(args.out, args.overwrite)
    machine = pick_machine(args.device_memory)

    def make(new: Path) -> 'Plan':
        if args.task == 'detection':
            from ..plan import detection
            return detection.plan(args.images, args.annotations, new, machine, args.size, args.pretrained)
        if args.task == 'segmentation':
            from ..plan import segmentation
            options = {name: getattr(args, name) for name in _PREPARE}
            return segmentation.plan(args.images, args.masks, new, machine, args.size, args.pretrained, options)
        from ..plan import classification
        return classification.plan(args.images, new, machine, args.size, args.pretrained)

    plan = write_project(args.out, make, args.overwrite)
    print(table(plan.fingerprint))
    print(report(args.out, plan))
    return 0
