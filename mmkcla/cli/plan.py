"""Look at your data, and write a config for them: sizes, classes, batch, learning rate, epochs, anchors.

detection       images and COCO annotation files: a Faster R-CNN, or a Mask R-CNN where all objects have masks
classification  a folder of images for each class: a ResNet
segmentation    images and masks: a U-Net

The folder --out gets kcla.py (each setting with its reason), plain.py (the same network without the layer attention),
samples.png (a dozen images with their labels drawn), fingerprint.json (what was found in the data), and README.md
(commands to train, to compare over seeds, and to predict). Nothing is trained. docs/plan.md lists the rules.
"""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.project import Plan

SUMMARY = 'look at your data and write a config for them'
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
    """The arguments of ``mmkcla plan``: a sub-command a task."""
    tasks = parser.add_subparsers(dest='task', required=True, metavar='task')
    detection = _add(tasks, 'detection', 'images and COCO annotation files')
    detection.add_argument('--images', nargs='+', required=True, type=Path, metavar='DIR',
                           help='folder of the images (or of folders such as train2017), or one for each file')
    detection.add_argument('--annotations', nargs='+', required=True, type=Path, metavar='FILE.json',
                           help='train and val, or train, val and test; a fifth of the images of a single file is held '
                                'out')
    classification = _add(tasks, 'classification', 'a folder of images for each class')
    classification.add_argument('--images', required=True, type=Path, metavar='DIR',
                                help='DIR/<class>/*.jpg, or DIR/train/<class>, DIR/val/<class> and maybe DIR/test')
    segmentation = _add(tasks, 'segmentation', 'images and masks')
    segmentation.add_argument('--images', required=True, type=Path, metavar='DIR', help='folder of the images')
    segmentation.add_argument('--masks', required=True, type=Path, metavar='DIR',
                              help='folder of the masks, of the same names: 0/1, 0/255, labels 0 to K-1, or colours')
    segmentation.add_argument('--classes', metavar='A,B,C',
                              help='names in the order of the labels (default: background,foreground)')
    segmentation.add_argument('--num-classes', type=int, metavar='K', help='masks hold labels 0 to K-1')
    segmentation.add_argument('--palette', type=Path, metavar='FILE',
                              help='colours of the classes: lines name,#rrggbb, or JSON')
    segmentation.add_argument('--threshold', type=int, metavar='N', help='two classes: foreground is above N')
    segmentation.add_argument('--split', metavar='8:1:1',
                              help='train, val and test (default: the folders train, val, test, else 8:1:1)')
    segmentation.add_argument('--groups', metavar='G',
                              help='what belongs together, as all images of a patient: a file of name,group, or a '
                                   'pattern')


def _add(tasks: argparse._SubParsersAction, name: str, what: str) -> argparse.ArgumentParser:
    task = tasks.add_parser(name, help=what, description=f'Plan for {what}.', epilog=_EXAMPLES[name],
                            formatter_class=argparse.RawDescriptionHelpFormatter)
    task.add_argument('--out', required=True, type=Path, metavar='DIR', help='folder of the project')
    task.add_argument('--overwrite', action='store_true', help='replace an earlier project, changes included')
    task.add_argument('--size', choices=('small', 'base'),
                      help='of the network (default: base for a GPU of at least 8 GiB)')
    task.add_argument('--pretrained', action=argparse.BooleanOptionalAction,
                      help='start from ImageNet weights, which the training downloads (default: where there are some)')
    task.add_argument('--device-memory', type=float, metavar='GIB',
                      help="plan for a GPU of that memory (default: this machine's GPU, else its CPU)")
    return task


def run(args: argparse.Namespace) -> int:
    """Plan; see :func:`add_arguments`."""
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
