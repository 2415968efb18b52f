"""Hooks: training curves, atomic checkpoints, exact resume, the check for NaN and infinite values, stop on signals."""
from .checkpoint import AtomicCheckpointHook
from .curves import CurvesHook
from .exact_resume import ExactResumeHook
from .non_finite import NonFiniteHook
from .stop import StopHook

__all__ = ['AtomicCheckpointHook', 'CurvesHook', 'ExactResumeHook', 'NonFiniteHook', 'StopHook']
