# mmpretrain's SE-ResNet-50 with the recipe of its neighbours here.
_base_ = './resnet50_8xb32_in1k.py'

model = dict(backbone=dict(type='SEResNet'))
