_base_ = [
    '../_base_/models/fpn_r50.py',
    '../_base_/datasets/isic2017_256x256.py',
    '../_base_/schedules/adamw_300e.py',
    '../_base_/seg_runtime.py',
]
