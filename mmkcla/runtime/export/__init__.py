"""Export of trained models for programs without OpenMMLab.

``modules`` wraps a model so that it takes plain images, ``formats`` writes and runs the files, ``parity`` compares them
with the model on a real image, and ``run`` does all of it for a config and a checkpoint.
"""
from .run import EXTENSIONS, Exported, export_model

__all__ = ['EXTENSIONS', 'Exported', 'export_model']
