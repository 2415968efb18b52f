"""Stereo models: a compact PSMNet with Efficient Attention in its feature network."""
from .aggregation import BasicAggregation, HourglassAggregation
from .cost_volume import concatenation_volume, soft_argmin, upsample_logits
from .data_preprocessor import StereoDataPreprocessor
from .ea_psmnet import EAPSMNet
from .feature_net import StereoFeatureNet

__all__ = ['BasicAggregation', 'EAPSMNet', 'HourglassAggregation', 'StereoDataPreprocessor', 'StereoFeatureNet',
           'concatenation_volume', 'soft_argmin', 'upsample_logits']
