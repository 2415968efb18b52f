"""Compare configs over test images and over seeds, and say in words what is shown."""
from .compare import Candidate, Comparison, compare
from .summary import candidate_in, candidates_of, compare_and_write

__all__ = ['Candidate', 'Comparison', 'candidate_in', 'candidates_of', 'compare', 'compare_and_write']
