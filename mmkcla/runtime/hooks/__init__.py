"""Hooks: curves of a training, checkpoints written whole."""
from .checkpoint import AtomicCheckpointHook
from .curves import CurvesHook

__all__ = ['AtomicCheckpointHook', 'CurvesHook']
