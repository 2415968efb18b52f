"""Hooks: training curves, atomic checkpoints, exact resume, the check for NaN and infinite values."""
from .checkpoint import AtomicCheckpointHook
from .curves import CurvesHook
from .exact_resume import ExactResumeHook
from .non_finite import NonFiniteHook

__all__ = ['AtomicCheckpointHook', 'CurvesHook', 'ExactResumeHook', 'NonFiniteHook']
