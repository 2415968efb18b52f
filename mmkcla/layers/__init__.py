"""The layer attentions: plain torch, one method a file, one interface (:class:`LayerAttention`)."""
from .base import LayerAttention, known_layer_attentions, layer_attention_class
from .kcla import KCLA

__all__ = ['KCLA', 'LayerAttention', 'known_layer_attentions', 'layer_attention_class']
