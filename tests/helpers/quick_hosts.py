"""What makes the hosts faster in tests, and changes no result."""
import ast
import gc
import sys

import pytest
import yapf.yapflib.yapf_api

from mmkcla.runtime.hooks import curves
from mmkcla.utils.figures import new_figure, write_figure

DRAW = curves.draw_curves
_frozen = 0


def skip_formatting() -> None:
    """mmengine formats its config for the log, both visualizers and each checkpoint: a third of a short training.

    The text stays as it is generated; it still has to be valid Python.
    """
    def unchanged(text, **_):
        ast.parse(text)
        return text, False

    yapf.yapflib.yapf_api.FormatCode = unchanged


def freeze_imports() -> None:
    """Exempt what is imported from garbage collection, which each data set of mmengine runs when it is built."""
    global _frozen
    if len(sys.modules) > _frozen + 50:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


def draw_quickly(*args: object) -> None:
    """The figure of the curves, small and without the layout of its texts, which takes two thirds of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, 'new_figure', lambda width, height: new_figure(width, height, layout='none'))
        patch.setattr(curves, 'write_figure', lambda path, figure, dpi: write_figure(path, figure, dpi=20))
        DRAW(*args)
