# The demo's Faster R-CNN on the photograph of coins, with an EMA over layers in place of KCLA.
_base_ = __import__('mmkcla').config_file('demo/faster-rcnn_r18-kcla_fpn_coins.py')

custom_imports = dict(imports=['ema_attention'], allow_failed_imports=False)
# _delete_: the options of KCLA, such as head_channels, are not those of the EMA
model = dict(backbone=dict(layer_attention=dict(_delete_=True, type='EMAAttention', drop_path=0.)))
