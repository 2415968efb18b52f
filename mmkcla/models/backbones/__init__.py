"""The hosts' ResNets with a layer attention after each block."""
from .layer_attention_mixin import LayerAttentionMixin
from .resnet import KCLAResNet, LayerAttentionResNet

__all__ = ['KCLAResNet', 'LayerAttentionMixin', 'LayerAttentionResNet']
