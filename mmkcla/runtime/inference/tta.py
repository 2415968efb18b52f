"""Test-time augmentation for configs without one: average over the image and its horizontal flip."""
import copy
from typing import TYPE_CHECKING

from ...errors import UserError

if TYPE_CHECKING:
    from mmengine.config import Config

_MODELS = {
    'mmdet': dict(type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100)),
    'mmseg': dict(type='mmkcla.BinarySegTTAModel'),  # merges any number of classes
    'mmpretrain': dict(type='AverageClsScoreTTA'),
}
_PACK_KEYS = {
    'mmdet': ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor', 'flip', 'flip_direction'),
    'mmseg': ('img_path', 'seg_map_path', 'ori_shape', 'img_shape', 'pad_shape', 'scale_factor', 'flip',
              'flip_direction', 'reduce_zero_label'),
}


def use_tta(config: 'Config', host: str | None) -> None:
    """Wrap the model and the test pipeline of ``config`` for test-time augmentation.

    ``tta_model`` and ``tta_pipeline`` of the config take precedence.

    Raises:
        UserError: the host is not supported, or the model predicts instance masks (mmdet merges only boxes).
    """
    if host not in _MODELS:
        raise UserError('--tta needs a config with default_scope mmdet, mmseg or mmpretrain')
    if host == 'mmdet' and _predicts_masks(config.model):
        raise UserError('--tta: mmdet merges only boxes, but this model predicts masks; test it without --tta')
    dataset = innermost_dataset(config.test_dataloader.dataset)
    if 'tta_pipeline' not in config:
        config.tta_pipeline = mirrored(dataset['pipeline'], host)
    if 'tta_model' not in config:
        config.tta_model = copy.deepcopy(_MODELS[host])
    dataset['pipeline'] = config.tta_pipeline
    config.model = dict(config.tta_model, module=config.model)


def mirrored(pipeline: list[dict], host: str) -> list[dict]:
    """Return the pipeline with each image packed twice: original and flipped."""
    *before, pack = copy.deepcopy(list(pipeline))
    if not str(pack.get('type')).split('.')[-1].startswith('Pack'):
        raise UserError(f'--tta: the test pipeline ends with {pack.get("type")!r} instead of a Pack… transform; '
                        'add a tta_pipeline to the config')
    if host in _PACK_KEYS:
        pack['meta_keys'] = _PACK_KEYS[host]
    labels = []
    if host == 'mmseg':  # load the ground truth after the flip, since the merged prediction is not flipped
        labels = [[step for step in before if _is_annotation(step)]]
        before = [step for step in before if not _is_annotation(step)]
    flips = [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0, direction='horizontal')]
    if host == 'mmpretrain':
        flips = [dict(type='RandomFlip', prob=0.0, direction='horizontal'), flips[1]]
    return [*before, dict(type='TestTimeAug', transforms=[flips, *filter(None, labels), [pack]])]


def innermost_dataset(dataset: dict) -> dict:
    """Return the dataset inside all wrappers, the first one of a concatenation."""
    while True:
        if 'dataset' in dataset:
            dataset = dataset['dataset']
        elif dataset.get('datasets'):
            dataset = dataset['datasets'][0]
        else:
            return dataset


def _is_annotation(step: dict) -> bool:
    return str(step.get('type')).split('.')[-1] in ('LoadAnnotations', 'LoadBinaryMask')


def _predicts_masks(model: dict) -> bool:
    return any(parts.get('mask_head') for parts in (model, model.get('roi_head') or {}))
