"""Public API for loading checkpoints and matching them with a model, implemented in :mod:`mmkcla.weights`."""
from .weights.matching import LoadReport, compare, load_matching, require, state_dict_for
from .weights.reading import fetch_state_dict, read_checkpoint, state_dict_of

__all__ = ['LoadReport', 'compare', 'fetch_state_dict', 'load_matching', 'read_checkpoint', 'require',
           'state_dict_for', 'state_dict_of']
