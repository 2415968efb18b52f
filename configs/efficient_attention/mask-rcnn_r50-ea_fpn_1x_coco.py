_base_ = '../mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

# In every block of res3 and res4, after its last convolution (the host's ResNet takes plugins). At step 0 the detector
# is the plain one bit for bit (zero_init).
model = dict(
    backbone=dict(
        type='ResNet',
        plugins=[
            dict(
                cfg=dict(type='mmkcla.EfficientAttention', key_channels=64, num_heads=2, zero_init=True),
                stages=(False, True, True, False),
                position='after_conv3')
        ]))
