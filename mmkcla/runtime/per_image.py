"""Keep what a comparison over test images needs, beside the metrics of a test.

``evaluation/per_image.csv`` has one row per image: written by ``BinarySegMetric`` and, for classification, by
``PerImageAccuracy``. For COCO metrics, ``evaluation/detections.bbox.json`` (and ``.segm.json``) contain the detections
in COCO's result format, and ``evaluation/detections.json`` the settings of the evaluation.
"""
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..utils.files import sha256_of, write_json

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.runner import Runner

FOLDER, TABLE, DETECTIONS = 'evaluation', 'per_image.csv', 'detections.json'


def keep_per_image(config: 'Config', work_dir: Path) -> str | None:
    """Add to the test evaluators of a config what writes the records of each image to ``work_dir``.

    Records of an earlier test are deleted.

    Returns:
        the file of the true objects, if the detections of a COCO metric are kept: see :func:`record_detections`.
    """
    folder = work_dir / FOLDER
    for name in (TABLE, DETECTIONS):
        (folder / name).unlink(missing_ok=True)
    evaluators = config.test_evaluator
    evaluators = list(evaluators) if isinstance(evaluators, (list, tuple)) else [evaluators]
    annotations = None
    for evaluator in list(evaluators):
        name = _class_name(evaluator)
        if name == 'Accuracy':
            evaluators.append(dict(type='mmkcla.PerImageAccuracy', out_dir=str(folder), topk=evaluator.get('topk', 1)))
            break
        if name == 'CocoMetric' and not evaluator.get('outfile_prefix') and not evaluator.get('format_only'):
            evaluator['outfile_prefix'] = prefix = str(folder / Path(DETECTIONS).stem)
            annotations = evaluator.get('ann_file') or f'{prefix}.gt.json'  # written by mmdet from the data set
            break
    config.test_evaluator = evaluators
    return annotations


def record_detections(runner: 'Runner', work_dir: Path, annotations: str) -> None:
    """Write ``detections.json``, after a test of which the detections were kept.

    Args:
        runner: of the test.
        work_dir, annotations: see :func:`keep_per_image`.
    """
    folder = work_dir / FOLDER
    prefix = str(folder / Path(DETECTIONS).stem)
    metric = next(each for each in runner.test_evaluator.metrics if getattr(each, 'outfile_prefix', None) == prefix)
    files = {kind: f'{Path(prefix).name}.{kind}.json' for kind in metric.metrics if kind in ('bbox', 'segm')}
    if Path(annotations).is_file() and metric.cat_ids is not None:
        write_json(folder / DETECTIONS, dict(
            ann_file=str(Path(annotations).resolve()), sha256=sha256_of(annotations), cat_ids=list(metric.cat_ids),
            files={kind: name for kind, name in files.items() if (folder / name).is_file()},
            iou_thrs=list(map(float, metric.iou_thrs)), proposal_nums=list(metric.proposal_nums)))


def _class_name(evaluator: Any) -> str:
    kind = evaluator.get('type') if hasattr(evaluator, 'get') else None
    return str(getattr(kind, '__name__', kind)).rpartition('.')[2]
