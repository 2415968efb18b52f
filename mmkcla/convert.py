"""Public API for converting weights, implemented in :mod:`mmkcla.weights.convert`."""
from .weights.convert import (
    CARRIES,
    CLASSIFIER_SOURCES,
    DETECTOR_SOURCES,
    PLAIN_SOURCES,
    SOURCES,
    Conversion,
    StateDict,
    convert_reference,
    convert_state_dict,
    recognise,
)

__all__ = ['CARRIES', 'CLASSIFIER_SOURCES', 'DETECTOR_SOURCES', 'PLAIN_SOURCES', 'SOURCES', 'Conversion', 'StateDict',
           'convert_reference', 'convert_state_dict', 'recognise']
