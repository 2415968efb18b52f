"""Training curves as a CSV table and a figure, independent of other loggers."""
import csv
import math
import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from ...registry import HOOKS
from ...utils.figures import new_figure, write_figure
from ...utils.tables import write_csv

TABLE, PICTURE = 'curves.csv', 'curves.png'
_NOT_CURVES = ('time', 'data_time', 'memory')


@HOOKS.register_module()
class CurvesHook(Hook):
    """Write ``curves.csv`` and ``curves.png`` to the work dir: losses, learning rate, validation metrics.

    The table has the columns ``epoch``, ``iter`` (finished iterations), and one per value (``train/loss``,
    ``train/lr``, ``val/coco/bbox_mAP``; empty if not available). Both files are written atomically at each validation
    and at the end of training, the table also with each checkpoint. A training resumed in the same work dir appends to
    the same table. Only rank 0 writes. A non-finite loss is reported once.

    Args:
        interval: iterations between two rows. Training values are means over the iterations since the last row. The
            last iteration of an epoch and of the training always adds a row.
    """

    priority = 'LOW'  # after the logger, before the checkpoints

    def __init__(self, interval: int = 10) -> None:
        if interval < 1:
            raise ValueError(f'interval must be at least 1, got {interval}')
        self.interval = interval
        self.rows: list[dict[str, float]] = []
        self._last = 0
        self._drawn = 0
        self._diverged = False

    def before_train(self, runner: Any) -> None:
        """Load the rows of this training up to the iteration it is resumed from."""
        self.rows = [row for row in read_table(Path(runner.work_dir) / TABLE) if row['iter'] <= runner.iter]
        self._last = int(max((row['iter'] for row in self.rows if any(name.startswith('train/') for name in row)),
                             default=runner.iter - runner.iter % self.interval))

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Add a row every ``interval`` iterations."""
        done = runner.iter + 1
        if not is_main_process() or not (done - self._last >= self.interval or done == runner.max_iters
                                         or self.end_of_epoch(runner.train_dataloader, batch_idx)):
            return
        values = {}
        for name, buffer in runner.message_hub.log_scalars.items():
            if name.startswith('train/') and name.split('/')[-1] not in _NOT_CURVES:
                window = 1 if _is_rate(name) else done - self._last
                values[name] = float(buffer.mean(window))
        self._add(runner, done, values)
        self._last = done
        if not self._diverged and not math.isfinite(values.get('train/loss', 0.0)):
            self._diverged = True
            runner.logger.warning(f'The loss is {values["train/loss"]} at iteration {done}: the training has diverged. '
                                  'Lower the learning rate, or clip gradients (optim_wrapper.clip_grad).')

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Add the validation metrics; write the table and the figure."""
        if not is_main_process() or runner._train_loop is None or isinstance(runner._train_loop, dict):
            return  # validation outside of training
        values = {f'val/{name}': float(value) for name, value in (metrics or {}).items() if _is_number(value)}
        self._add(runner, runner.iter, values)
        self._write(runner, draw=True)

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Write the table, so that it is never older than a checkpoint to resume from."""
        if is_main_process():
            self._write(runner, draw=False)

    def after_train(self, runner: Any) -> None:
        """Write the table and the figure."""
        if is_main_process():
            self._write(runner, draw=True)

    def _add(self, runner: Any, done: int, values: dict[str, float]) -> None:
        if not values:
            return
        if self.rows and self.rows[-1]['iter'] == done:
            self.rows[-1].update(values)
        else:
            per_epoch = max(1, len(runner.train_dataloader))
            self.rows.append({'epoch': math.ceil(done / per_epoch), 'iter': done, **values})

    def _write(self, runner: Any, draw: bool) -> None:
        folder = Path(runner.work_dir)
        write_table(folder / TABLE, self.rows)
        if draw and self._drawn != len(self.rows):
            self._drawn = len(self.rows)
            draw_curves(folder / PICTURE, self.rows, Path(runner.work_dir).name, _chosen_by(runner))


def _chosen_by(runner: Any) -> list[str]:
    """Return the metrics that select the best checkpoint."""
    return [name for hook in getattr(runner, 'hooks', ()) for name in getattr(hook, 'key_indicators', ())]


_NOT_DRAWN = ('_lo', '_hi')
_MAIN = ('dsc', 'iou', 'map', 'accuracy', 'top1')
_MAX_METRICS = 6


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) and not isinstance(value, (bool, complex))


def _is_rate(name: str) -> bool:
    return name.split('/')[-1].split('.')[-1] in ('lr', 'momentum', 'base_lr')


def write_table(path: Path, rows: list[dict[str, float]]) -> None:
    """Write rows with different columns as CSV; numbers have seven significant digits."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = ['epoch', 'iter', *(name for name in names if name not in ('epoch', 'iter'))]
    write_csv(path, ({name: float(value) for name, value in row.items()} for row in rows), columns, digits=7)


def read_table(path: Path) -> list[dict[str, float]]:
    """Read the rows of :func:`write_table`; return an empty list if the file is missing or invalid."""
    try:
        with open(path, encoding='utf-8', newline='') as file:
            rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError):
        return []
    if any('iter' not in row for row in rows):
        return []
    return [{**row, 'epoch': int(row.get('epoch', 0)), 'iter': int(row['iter'])} for row in rows]


def main_metrics(names: Iterable[str], first: Sequence[str] = ()) -> list[str]:
    """Select at most six metrics to draw: ``first``, then those that most papers report; if there are none, others.

    Args:
        names: columns of the table (``val/DSC_pooled``).
        first: metrics to put first, without ``val/``.
    """
    names = [name for name in names if not name.endswith(_NOT_DRAWN)]
    chosen = [f'val/{name}' for name in first if f'val/{name}' in names]
    # COCO metrics by object size come last
    main = sorted((name for name in names if any(part in name.lower() for part in _MAIN)),
                  key=lambda name: name.endswith(('_s', '_m', '_l')))
    return list(dict.fromkeys([*chosen, *main]))[:_MAX_METRICS] or names[:_MAX_METRICS]


def draw_curves(path: Path, rows: list[dict[str, float]], title: str, first: Sequence[str] = ()) -> None:
    """Draw losses, learning rate and :func:`main_metrics` versus iterations, one panel each, to a PNG file."""
    names = dict.fromkeys(name for row in rows for name in row if name not in ('epoch', 'iter'))
    losses = [name for name in names if name.startswith('train/') and 'loss' in name]
    rates = [name for name in names if name == 'train/lr' or name.endswith('.lr')]
    measured = [name for name in names if name.startswith('val/')
                and any(row.get(name, -1) != -1 for row in rows)]  # COCO uses -1 for undefined (no large objects)
    metrics = main_metrics(measured, first)
    panels = [(label, group) for label, group in
              (('training loss', losses), ('learning rate', rates), ('validation', metrics)) if group]
    if not panels:
        return
    heights = [2.0 if group is rates else 3.4 for _, group in panels]
    figure = new_figure(10, sum(heights))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (label, group) in zip(axes, panels, strict=True):
        for number, name in enumerate(group):
            points = [(row['iter'], row[name]) for row in rows if name in row]
            if name in metrics:
                points = [(done, value) for done, value in points if value != -1]
            if not points:
                continue
            total = name.endswith(('/loss', '/lr'))
            axis.plot(*zip(*points, strict=True), label=name.split('/', 1)[1],
                      color='black' if total else f'C{number % 10}', linewidth=1.8 if total else 1.2,
                      linestyle='-' if number < 10 else '--',
                      marker='o' if label == 'validation' or len(points) < 3 else None, markersize=3.5)
        axis.ticklabel_format(axis='y', useOffset=False)
        drawn = [row[name] for row in rows for name in group if math.isfinite(row.get(name, math.nan))]
        if group is rates and drawn and min(drawn) > 0.99 * max(drawn):  # practically constant
            axis.set_ylim(0, 1.1 * max(drawn))
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc='center left', bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes[-1].set_xlabel('iteration')
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    figure.align_ylabels(axes)
    figure.suptitle(title)
    write_figure(path, figure, dpi=120)
