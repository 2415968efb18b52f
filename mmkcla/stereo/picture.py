"""Picture of a stereo prediction: left view, ground truth, prediction and error."""
from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from ..utils.figures import new_figure

_UNKNOWN = '0.75'
MAX_ERROR = 6  # pixels, upper end of the error colour map


def stereo_figure(left: np.ndarray | None, truth: np.ndarray, prediction: np.ndarray, title: str) -> Figure:
    """Draw four panels with colour bars. Both disparities use the same colour range.

    Args:
        left: ``(H, W, 3)`` uint8, RGB; None: omit the panel.
        truth: ``(H, W)``, pixels; 0 or less means unknown and is drawn in grey.
        prediction: ``(H, W)``, pixels.
        title: title of the figure.
    """
    known = truth > 0
    highest = float(truth[known].max()) if known.any() else float(np.nanmax(prediction))
    disparity = dict(cmap=_with_grey('viridis'), vmin=0, vmax=highest)
    error = dict(cmap=_with_grey('magma'), vmin=0, vmax=MAX_ERROR)
    panels = [('truth (px)', np.where(known, truth, np.nan), disparity),
              ('prediction (px)', prediction, disparity),
              ('error (px)', np.where(known, np.abs(prediction - truth), np.nan), error)]
    if left is not None:
        panels.insert(0, ('left view', left, {}))
    height = 3.2 * truth.shape[0] / truth.shape[1]
    figure = new_figure(3.7 * len(panels), min(max(height, 1.5), 6) + 0.9)
    for axes, (name, values, options) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        image = axes.imshow(values, interpolation='nearest', **options)
        axes.set_title(name)
        axes.set_axis_off()
        if options:
            figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03,
                            extend='max' if name.startswith('error') else 'neither')
    figure.suptitle(title)
    figure.text(0.995, 0.005, 'grey: truth unknown, ignored', ha='right', va='bottom', fontsize=9)
    return figure


def _with_grey(name: str) -> Colormap:
    return colormaps[name].with_extremes(bad=_UNKNOWN)
