# The plain ResNet-20 on scikit-learn's digits, with an EMA over layers after each block.
_base_ = __import__('mmkcla').config_file('demo/resnet20_digits.py')

custom_imports = dict(imports=['ema_attention'], allow_failed_imports=False)
model = dict(backbone=dict(layer_attention=dict(type='EMAAttention', drop_path=0.)))
