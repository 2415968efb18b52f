_base_ = [
    '../_base_/models/cifar_resnet.py',
    '../_base_/datasets/cifar10.py',
    '../_base_/schedules/cifar_180e.py',
    '../_base_/cls_runtime.py',
]

model = dict(backbone=dict(depth=164))
