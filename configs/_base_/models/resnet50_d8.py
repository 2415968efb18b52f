# A ResNet-50 of output stride 8 (dilated), plain ImageNet weights.
_base_ = './binary_segmentor.py'

model = dict(
    backbone=dict(
        type='mmkcla.LayerAttentionResNet',
        depth=50,
        out_indices=(0, 1, 2, 3),
        dilations=(1, 1, 2, 4),
        strides=(1, 2, 1, 1),
        contract_dilation=True,
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')))
