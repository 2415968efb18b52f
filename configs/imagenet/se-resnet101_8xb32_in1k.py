# mmpretrain's SE-ResNet-101 with the recipe of its neighbours here.
_base_ = './resnet101_8xb32_in1k.py'

model = dict(backbone=dict(type='SEResNet'))
