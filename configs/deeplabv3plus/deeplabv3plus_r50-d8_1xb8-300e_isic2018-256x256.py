_base_ = [
    '../_base_/models/deeplabv3plus_r50-d8.py',
    '../_base_/datasets/isic2018_256x256.py',
    '../_base_/schedules/adamw_300e.py',
    '../_base_/seg_runtime.py',
]
