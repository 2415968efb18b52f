"""Necks that preserve the shapes of a feature pyramid, and an FPN with layer attention in its top-down pathway."""
from .cross_level import CrossLevelAttention
from .kcla_fpn import KCLAFPN
from .layer_attention_neck import EfficientAttentionNeck, LayerAttentionNeck

__all__ = ['CrossLevelAttention', 'EfficientAttentionNeck', 'KCLAFPN', 'LayerAttentionNeck']
