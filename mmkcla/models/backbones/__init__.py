"""OpenMMLab ResNets with a layer attention after each block."""
from .cifar_resnet import CifarLayerAttentionResNet
from .layer_attention_mixin import LayerAttentionMixin
from .resnet import KCLAResNet, LayerAttentionResNet

__all__ = ['CifarLayerAttentionResNet', 'KCLAResNet', 'LayerAttentionMixin', 'LayerAttentionResNet']
