"""Keep a test running if a picture cannot be drawn."""
import functools
from collections.abc import Callable
from typing import Any

from ..utils.text import one_line

_DRAWING = ('add_datasample', 'visualize_cls')  # methods of mmdet's and mmseg's visualizers, and of mmpretrain's


def skip_what_cannot_be_drawn(runner: Any) -> None:
    """Make the runner's visualizer log and skip pictures that it cannot draw (mmseg's fails on 1×1 images). Errors of
    the file system are still raised."""
    for name in _DRAWING:
        if hasattr(runner.visualizer, name):
            setattr(runner.visualizer, name, _guarded(getattr(runner.visualizer, name), runner.logger))


def _guarded(draw: Callable, logger: Any) -> Callable:
    @functools.wraps(draw)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return draw(*args, **kwargs)
        except OSError:
            raise
        except Exception as error:
            picture = _path(args, kwargs)
            logger.warning(f'{picture} cannot be drawn; skipped: {type(error).__name__}: '
                           f'{one_line(error)}')
            return None

    return guarded


def _path(args: tuple, kwargs: dict) -> str:
    """Return the path of the image, else the name of the picture."""
    sample = kwargs.get('data_sample', args[2] if len(args) > 2 else None)
    return str(getattr(sample, 'img_path', None) or kwargs.get('name') or (args[0] if args else 'an image'))
