"""The layer attentions: plain torch, one method a file, one interface (:class:`LayerAttention`)."""
from .base import LayerAttention, known_layer_attentions, layer_attention_class
from .dla import DLABase, DLALight
from .kcla import KCLA
from .linear import LinearLayerAttention
from .mrla import MRLABase, MRLALight
from .softmax import SoftmaxLayerAttention

__all__ = [
    'KCLA', 'DLABase', 'DLALight', 'LayerAttention', 'LinearLayerAttention', 'MRLABase', 'MRLALight',
    'SoftmaxLayerAttention', 'known_layer_attentions', 'layer_attention_class'
]
