"""Convert weights of other projects to our names: only renaming, except for the temperatures of KCLA."""
from .names import CARRIES, Conversion, StateDict, convert_reference, convert_state_dict
from .sources import CLASSIFIER_SOURCES, DETECTOR_SOURCES, PLAIN_SOURCES, SOURCES, recognise

__all__ = ['CARRIES', 'CLASSIFIER_SOURCES', 'DETECTOR_SOURCES', 'PLAIN_SOURCES', 'SOURCES', 'Conversion', 'StateDict',
           'convert_reference', 'convert_state_dict', 'recognise']
