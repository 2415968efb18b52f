"""Hooks: training curves, atomic checkpoints, exact resume."""
from .checkpoint import AtomicCheckpointHook
from .curves import CurvesHook
from .exact_resume import ExactResumeHook

__all__ = ['AtomicCheckpointHook', 'CurvesHook', 'ExactResumeHook']
