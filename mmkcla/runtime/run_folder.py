"""The work dir of a training, given to a command in place of its config and checkpoint."""
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..paths import is_run
from ..utils.text import note
from .resume import first_usable, read_intact

if TYPE_CHECKING:
    from mmengine.config import Config

CHECKPOINT_SUFFIXES = ('.pth', '.pt', '.safetensors')


def folder_of_run(config: str) -> Path | None:
    """Return ``config`` as a path if it is the work dir of a training, else None."""
    path = Path(config)
    return path if is_run(path) else None


def split_checkpoint(config: str, checkpoint: str | None, inputs: list[str]) -> tuple[str | None, list[str]]:
    """Return the checkpoint and the inputs: after a work dir, the first argument may already be an input."""
    if checkpoint is None or '://' in checkpoint or Path(checkpoint).suffix in CHECKPOINT_SUFFIXES:
        return checkpoint, inputs
    return (None, [checkpoint, *inputs]) if folder_of_run(config) else (checkpoint, inputs)


def required_checkpoint(config: str, checkpoint: str | None) -> str | None:
    """Check that a checkpoint is named; return it, or None if ``config`` is a work dir, which has its own.

    Raises:
        UserError: no checkpoint, and the config is a file.
    """
    if checkpoint is None and folder_of_run(config) is None:
        raise UserError(f'no checkpoint given: name one after the config {config}, or give the work dir of a training '
                        'in place of the config')
    return checkpoint


def checkpoint_of_run(folder: Path, config: 'Config') -> str:
    """Return the best checkpoint of a work dir if its training kept one, else the last one; report which.

    Raises:
        UserError: there is none, or none can be used.
    """
    chosen = choose_checkpoint(folder, save_best_metric(config), 'best')
    if chosen is None:
        raise UserError(f'no checkpoint in {folder}; mmkcla train {folder} goes on with the training')
    note(f'{folder}: using {chosen.name}')
    return str(chosen)


def choose_checkpoint(folder: Path, save_best: str | None, which: str) -> Path | None:
    """Select the checkpoint of a training to test.

    Args:
        folder: work dir of the training.
        save_best: metric of the best checkpoint; None if the training did not keep one.
        which: ``'best'`` or ``'last'``.

    Returns:
        The best checkpoint recorded in the last one (a crash may leave other files with similar names); without a
        record, the one with the highest number; if there is none, the last one; None if there are no checkpoints.
    """
    last, content = first_usable(folder, read_intact, option='') or (None, {})
    if which == 'last' or not save_best:
        return last
    named: list[Path] = []
    if last is not None:
        known = (content.get('message_hub') or {}).get('runtime_info') or {}
        recorded = known.get(f'best_ckpt_{save_best}') or known.get('best_ckpt')
        named = [folder / Path(recorded).name, Path(recorded)] if recorded else []
    metric = '*' if save_best == 'auto' else save_best.replace('/', '_')
    by_name = sorted(folder.glob(f'best_{metric}_*.pth'), key=_number, reverse=True)
    best = next((path for path in [*named, *by_name] if path.is_file()), None)
    if best is None and last is not None:
        note(f'no best checkpoint in {folder} (was there a validation?); testing the last one, {last.name}')
    return best or last


def _number(path: Path) -> int:
    """Return the epoch or iteration in the name of a checkpoint; times of files do not survive a copy."""
    match = re.search(r'_(\d+)$', path.stem)
    return int(match.group(1)) if match else -1


def save_best_metric(config: 'Config') -> str | None:
    """Return the ``save_best`` metric of the config, the first one if there are several."""
    wanted = ((config.get('default_hooks') or {}).get('checkpoint') or {}).get('save_best')
    return (wanted[0] if wanted else None) if isinstance(wanted, (list, tuple)) else wanted
