"""Public API for loading checkpoints and matching them with a model, implemented in :mod:`mmkcla.weights`."""
from .weights.addresses import fetch_state_dict, read_address
from .weights.matching import LoadReport, compare, load_matching, require, state_dict_for
from .weights.reading import read_checkpoint, state_dict_of
from .weights.safe_loading import load_safely

__all__ = ['LoadReport', 'compare', 'fetch_state_dict', 'load_matching', 'load_safely', 'read_address',
           'read_checkpoint', 'require', 'state_dict_for', 'state_dict_of']
