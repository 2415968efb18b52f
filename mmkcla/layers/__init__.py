"""Layer attentions: plain torch, one method per file, one interface (:class:`LayerAttention`).

The attentions over the positions of a single map (:class:`SpatialAttention`) are here, too.
"""
from .base import LayerAttention, known_layer_attentions, layer_attention_class
from .dla import DLABase, DLALight
from .dot_product import DotProductAttention2d
from .efficient_attention import EfficientAttention, EfficientLayerAttention
from .kcla import KCLA
from .linear import LinearLayerAttention
from .mrla import MRLABase, MRLALight
from .softmax import SoftmaxLayerAttention
from .spatial_attention import SpatialAttention

__all__ = [
    'KCLA', 'DLABase', 'DLALight', 'DotProductAttention2d', 'EfficientAttention', 'EfficientLayerAttention',
    'LayerAttention', 'LinearLayerAttention', 'MRLABase', 'MRLALight', 'SoftmaxLayerAttention', 'SpatialAttention',
    'known_layer_attentions', 'layer_attention_class'
]
