"""Check the data set of a classification before a run."""
from __future__ import annotations

from typing import Any

from ...errors import UserError
from ...registry import DATA_CHECKS
from ...utils.text import listed, one_line, plural
from ..check import Dataset, check_heads, class_count, datasets_of
from ..findings import Finding, act_on
from ..image_files import ImageFile, depth_findings, file_findings, leak, read_spread, shape_findings
from ..pipelines import image_loader
from .class_folder import (
    ClassFolder,
    empty_findings,
    label_findings,
    plain_name,
    read_class_folder,
    same_content,
)

# the classes are fixed; the files have a layout of their own, which the host checks
FIXED = ['CIFAR10', 'CIFAR100', 'MNIST', 'FashionMNIST', 'Caltech101', 'CUB', 'DTD', 'FGVCAircraft', 'Flowers102',
         'Food101', 'OxfordIIITPet', 'StanfordCars', 'SUN397', 'DigitsDataset']
# several labels for an image, pairs of images, or no classes
SKIPPED = ['MultiLabelDataset', 'VOC', 'MultiTaskDataset', 'InShop', 'NLVR2', 'KFoldDataset', 'COCOCaption',
           'COCORetrieval', 'COCOVQA', 'FlamingoEvalCOCOCaption', 'FlamingoEvalCOCOVQA', 'Flickr30kCaption',
           'Flickr30kRetrieval', 'GQA', 'IconQA', 'InfographicVQA', 'MiniGPT4Dataset', 'NoCaps', 'OCRVQA', 'RefCOCO',
           'ScienceQA', 'TextVQA', 'VGVQA', 'VSR', 'VisualGenomeQA', 'VizWiz']


@DATA_CHECKS.register_module(['CustomDataset', 'ImageNet', 'ImageNet21k', 'Places205'])
def check_class_folder(dataset: Dataset, model: dict) -> None:
    """Check class folders or an annotation list: classes against the training set, labels, files, and the heads.

    Args:
        dataset: a :class:`mmkcla.datasets.check.Dataset`.
        model: the config's model.

    Raises:
        UserError: for the first fault; remarks are printed as notes.
    """
    found = class_folder_of(dataset)
    if found is None:
        return
    number = len(found.classes) if found.classes else _classes_of_head(model)
    findings = found.findings + empty_findings(found, dataset.trained_on) + label_findings(found, number)
    if not any(finding.refuse for finding in findings):
        findings += compare_with_train(dataset, found)
    if any(finding.refuse for finding in findings):
        act_on(findings, dataset.where)
    check_model(dataset, model, found)
    act_on(findings + files_of(dataset, found, read_spread(found.images)), dataset.where)


def check_model(dataset: Dataset, model: dict, found: ClassFolder) -> None:
    """Check the number of classes of the heads, and ``topk`` of heads and metrics.

    Raises:
        UserError: for the first that does not fit the classes.
    """
    number = len(found.classes) if found.classes else _classes_of_head(model)
    if found.classes:
        train = _train_of(dataset)  # a later set may lack the last classes
        classes, where = (train[0].classes, train[1]) if train and train[0].folders and found.folders else (
            found.classes, dataset.where)
        number = len(classes or ())
        check_heads(model, number, f'{where} has {class_count(classes or ())}')
    _check_topk(dataset, model, number)


@DATA_CHECKS.register_module(FIXED)
def check_fixed_classes(dataset: Dataset, model: dict) -> None:
    """Check the heads and metrics of a data set with fixed classes."""
    classes = dataset.config.get('classes') or (dataset.config.get('metainfo') or {}).get('classes')
    if isinstance(classes, str) or not (classes := classes or dataset.default_classes):
        return
    check_heads(model, len(classes), f'{dataset.where} has {class_count(classes)}')
    _check_topk(dataset, model, len(classes))


@DATA_CHECKS.register_module(SKIPPED)
def skip_check(dataset: Dataset, model: dict) -> None:
    """Skip data sets that are not a classification with one label."""


def class_folder_of(dataset: Dataset) -> ClassFolder | None:
    """Read the class folder of a dataset config; None where it cannot be looked at: on a remote file system, or in a
    subclass with another file layout.

    Raises:
        UserError: the host cannot build the data set.
    """
    key = ('class folder', dataset.where)
    if key not in dataset.cache:
        dataset.cache[key] = _read(dataset)
    return dataset.cache[key]


def classes_of(dataset: Dataset) -> tuple[str, ...] | None:
    """Class names of a class folder in the order of the labels: those of the config, else the folders."""
    found = class_folder_of(dataset)
    return None if found is None else found.classes


def _read(dataset: Dataset) -> ClassFolder | None:
    from mmpretrain.datasets import CustomDataset
    config, kind = dataset.config, dataset.kind
    places = [config.get('data_root'), config.get('ann_file'), config.get('data_prefix')]
    if any('://' in str(place) for place in places) or not all(
            getattr(kind, name, None) is getattr(CustomDataset, name)
            for name in ('load_data_list', '_find_samples', 'is_valid_file')):
        return None
    if not any(places):
        raise UserError(f'{dataset.where} has none of data_root, data_prefix and ann_file')
    options: dict[str, Any] = {key: value for key, value in config.items()
                               if key not in ('type', 'pipeline', 'lazy_init', '_scope_')}
    try:
        return read_class_folder(kind(**options, lazy_init=True))
    except (UserError, MemoryError):
        raise
    except Exception as error:  # an assertion or a missing file, by what is wrong
        raise UserError(f'{dataset.where} cannot be built: {one_line(error, 200)}') from error


def compare_with_train(dataset: Dataset, found: ClassFolder) -> list[Finding]:
    """Compare the classes of a validation or test set with those of the training set."""
    if dataset.split == 'train':
        return []
    first = _train_of(dataset)
    if first is None:
        return []
    train, where = first
    if train.folders and found.folders:
        return compare_folders(train.folders, found.folders, where, found)
    findings = []
    if train.classes and found.classes and train.classes != found.classes and (train.stated or found.stated):
        findings.append(Finding(f'the classes ({listed(found.classes)}) are not those of {where} '
                                f'({listed(train.classes)}), in this order', True))
    unseen = sorted(set(found.labels) - set(train.labels)) if train.labels else []
    if unseen:
        findings.append(Finding(f'{plural(len(unseen), "label")} without an image in {where}', False, len(unseen),
                                list(map(str, unseen))))
    return findings


def compare_folders(train: tuple[str, ...], found: tuple[str, ...], where: str,
                     folder: ClassFolder) -> list[Finding]:
    """Compare the names of class folders with those of the training set at ``where``."""
    if train == found:
        return []
    missing = [name for name in train if name not in found]
    extra = [name for name in found if name not in train]
    plain = {plain_name(name): name for name in train}
    case = [f'{name!r} for {plain[plain_name(name)]!r}' for name in extra if plain_name(name) in plain]
    root = folder.root
    if case:
        return [Finding(f'class folders of {root} differ from those of {where} by case or spaces; rename them', True,
                        len(case), case)]
    if extra:
        return [Finding(f'{plural(len(extra), "class folder")} of {root} missing from {where}, so that the labels '
                        'differ', True, len(extra), extra)]
    if train[:len(found)] == found:  # the last ones are missing: no label moves
        return [Finding(f'{plural(len(missing), "class")} of {where} without a folder in {root}', False, len(missing),
                        missing)]
    return [Finding(f'{plural(len(missing), "class")} of {where} without a folder in {root}, so that the labels would '
                    'shift; add empty folders of these names', True, len(missing), missing)]


def _train_of(dataset: Dataset) -> tuple[ClassFolder, str] | None:
    """The first training set that is a class folder; None if there is none, or if its files are not here."""
    for other in datasets_of(dataset.run, 'train', dataset.cache):
        if 'CustomDataset' in other.ancestors:
            try:
                found = class_folder_of(other)
            except UserError:  # a test does not need the training set
                return None
            return None if found is None or not found.images else (found, other.where)
    return None


def files_of(dataset: Dataset, found: ClassFolder, images: list[ImageFile]) -> list[Finding]:
    """Damaged files, bit depths, and images that are also in the training set.

    Args:
        dataset, found: the data set.
        images: the files that were read.
    """
    findings = file_findings(images, len(found.images)) + same_content(found, images)
    pipeline = dataset.config.get('pipeline') or ()
    findings += depth_findings(images, image_loader(pipeline)) + shape_findings(images, pipeline)
    train = None if dataset.split == 'train' or _drawn_from(dataset) else _train_of(dataset)
    if train is not None:
        sizes = {path.stat().st_size for path in found.images if path.is_file()}  # only these can be equal
        findings += leak(read_spread([path for path in train[0].images
                                      if path.is_file() and path.stat().st_size in sizes]), images, train[1])
    return findings


def _drawn_from(dataset: Dataset) -> bool:
    """Whether only a part of the listed images is used, so that two sets may read one folder."""
    loaders = [dataset.run.get(f'{split}_dataloader') or {} for split in ('train', dataset.split)]
    return any('KFold' in str(part.get('type')) or part.get('indices') is not None
               for part in (loader.get('dataset') or {} for loader in loaders))


def _classes_of_head(model: Any) -> int | None:
    head = model.get('head') if isinstance(model, dict) else None
    return head.get('num_classes') if isinstance(head, dict) else None


def _check_topk(dataset: Dataset, model: Any, classes: int | None) -> None:
    """Refuse ``topk`` of metrics and heads beyond the number of classes."""
    if classes is None:
        return
    head = model.get('head') if isinstance(model, dict) else None
    head = head if isinstance(head, dict) else {}
    places = [(head, 'model.head')] if dataset.split == 'train' and head.get('cal_acc') else []
    places += [(part, where) for part, where in dataset.evaluators
               if str(part.get('type')).split('.')[-1] == 'Accuracy']
    for part, where in places:
        topk = part.get('topk')
        ranks = [topk] if isinstance(topk, int) else list(topk or ())
        if ranks and max(ranks) > classes:
            fitting = [rank for rank in ranks if rank <= classes]
            raise UserError(f'{where}.topk={tuple(ranks)} with {plural(classes, "class")}; write '
                            f'topk=({", ".join(map(str, fitting or [1]))},)')
