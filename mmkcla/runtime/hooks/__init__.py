"""Hooks: training curves and atomic checkpoints."""
from .checkpoint import AtomicCheckpointHook
from .curves import CurvesHook

__all__ = ['AtomicCheckpointHook', 'CurvesHook']
