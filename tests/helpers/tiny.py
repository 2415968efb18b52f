"""A data set and a detector so small that a training takes seconds on a CPU, and a look at the command's errors."""
import json
from pathlib import Path

import cv2
import numpy as np

from mmkcla.cli import main

CLASSES = ('blue', 'green')
SIDE = 96
KCLA = "'mmkcla.KCLAResNet', layer_attention=dict(type='KCLA', head_channels=16)"


def write_coco(folder: Path, images: int = 6, seed: int = 0) -> Path:
    """Write ``folder/ann.json`` and ``folder/images``: dark noise with one to three blue or green rectangles."""
    rng = np.random.default_rng(seed)
    (folder / 'images').mkdir(parents=True)
    content = {'images': [], 'annotations': [], 'categories': [{'id': i + 1, 'name': n} for i, n in enumerate(CLASSES)]}
    for number in range(1, images + 1):
        image = rng.integers(0, 60, (SIDE, SIDE, 3), dtype=np.uint8)
        for _ in range(rng.integers(1, 4)):
            (w, h), (x, y) = rng.integers(24, 45, 2).tolist(), rng.integers(0, SIDE - 45, 2).tolist()
            label = int(rng.integers(0, 2))
            image[y:y + h, x:x + w] = ((255, 40, 40), (40, 255, 40))[label]
            content['annotations'].append({
                'id': len(content['annotations']) + 1, 'image_id': number, 'category_id': label + 1,
                'bbox': [x, y, w, h], 'area': w * h, 'iscrowd': 0,
                'segmentation': [[x, y, x + w, y, x + w, y + h, x, y + h]]})
        name = f'{number:03d}.jpg'
        cv2.imwrite(str(folder / 'images' / name), image)
        content['images'].append({'id': number, 'file_name': name, 'width': SIDE, 'height': SIDE})
    (folder / 'ann.json').write_text(json.dumps(content))
    return folder


DETECTOR = '''
_base_ = 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type={backbone}, depth=18, base_channels=16, num_stages=4, out_indices=(0, 1, 2, 3),
        norm_cfg=dict(type='BN'), norm_eval=False),
    neck=dict(in_channels=[16, 32, 64, 128], out_channels=64),
    rpn_head=dict(in_channels=64, feat_channels=64),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=128, num_classes=2)),
    train_cfg=dict(rpn_proposal=dict(nms_pre=200, max_per_img=100), rcnn=dict(sampler=dict(num=32))),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=100)))
_load = dict(type='mmkcla.LoadImageFromFile')
_resize = dict(type='Resize', scale=({side}, {side}), keep_ratio=True)
_labels = dict(type='LoadAnnotations', with_bbox=True)
_data = dict(data_root='{root}', ann_file='ann.json', data_prefix=dict(img='images/'),
             metainfo=dict(classes=('blue', 'green')))
train_dataloader = dict(
    batch_size=3, num_workers=0, persistent_workers=False,
    dataset=dict(pipeline=[_load, _labels, _resize, dict(type='PackDetInputs')], **_data))
val_dataloader = dict(
    num_workers=0, persistent_workers=False,
    dataset=dict(pipeline=[_load, _resize, _labels, dict(
        type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))], **_data))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='{root}/ann.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=2)
param_scheduler = []
auto_scale_lr = dict(base_batch_size=3)
'''


def write_detector(path: Path, root: Path, backbone: str = "'ResNet'", more: str = '') -> Path:
    """Write the config of a two-class detector for the data set at ``root``, ``backbone``
    being Python text for its type and further keywords, with ``more`` lines at its end."""
    path.write_text(DETECTOR.format(root=root, side=SIDE, backbone=backbone) + more)
    return path


def error_of(capsys, *argv: object) -> str:
    """Run ``mmkcla``, see that it fails with code 2 and one line of error, and return that line."""
    capsys.readouterr()
    assert main([str(part) for part in argv]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith('error: ')]
    assert len(lines) == 1
    return lines[0].removeprefix('error: ')
