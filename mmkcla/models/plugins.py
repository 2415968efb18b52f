"""Spatial attention modules as block plugins, for ``plugins=`` of the ResNets of mmdet and mmseg.

Example: ``plugins=[dict(cfg=dict(type='mmkcla.EfficientAttention', key_channels=64, num_heads=2, zero_init=True),
stages=(False, True, True, False), position='after_conv3')]``.
"""
from ..layers import DotProductAttention2d, EfficientAttention
from ..registry import MODELS

__all__ = ['DotProductAttention2d', 'EfficientAttention']

for _module in (EfficientAttention, DotProductAttention2d):
    MODELS.register_module(module=_module)
