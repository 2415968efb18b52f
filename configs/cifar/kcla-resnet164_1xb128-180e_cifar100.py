_base_ = './resnet164_1xb128-180e_cifar100.py'

model = dict(backbone=dict(layer_attention=dict(type='KCLA')))
