"""Find the checkpoint to resume from."""
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import UnusableCheckpoint, UserError
from ..utils.text import listed, note

if TYPE_CHECKING:
    from mmengine.config import Config

_Result = TypeVar('_Result')


def set_resume(config: 'Config', wanted: str, work_dir: Path) -> None:
    """Set the checkpoint to resume from. With ``'auto'``, the runner chooses it (:func:`first_usable`); without a
    checkpoint in the work dir, the training starts from scratch."""
    if wanted == 'auto' and not resumable(work_dir):
        note(f'--resume: no checkpoint in {work_dir}; starting from the beginning')
        return
    config.resume = True
    config.load_from = None if wanted == 'auto' else wanted


def resumable(work_dir: Path) -> list[Path]:
    """Return the checkpoints of a work dir to resume from, in the order in which to try them. They are not read.

    First the one named in ``last_checkpoint``, then those with the highest numbers. If ``last_checkpoint`` names a file
    outside of the work dir, it is the last one.
    """
    numbered = {int(match.group(1)): path for path in work_dir.glob('*.pth')
                if (match := re.fullmatch(r'(?:epoch|iter)_(\d+)', path.stem))}
    candidates = [numbered[number] for number in sorted(numbered, reverse=True)]
    try:
        named = Path((work_dir / 'last_checkpoint').read_text(encoding='utf-8').strip())
    except (OSError, UnicodeDecodeError):
        named = None
    if named and named.name:
        # the folder may have been moved or copied: prefer the files in it
        candidates = [work_dir / named.name, *candidates, named]
    return [path for path in dict.fromkeys(candidates) if path.exists()]


def first_usable(work_dir: Path, use: Callable[[Path], _Result], option: str = '--resume: ',
                 report: Callable[[str], None] = note) -> tuple[Path, _Result] | None:
    """Call ``use`` with each checkpoint of a work dir, until one can be used.

    Args:
        work_dir: folder of the training.
        use: reads the checkpoint, once. Where it raises ``UnusableCheckpoint``, this is reported and the next one is
            tried; other errors are passed on.
        option: start of the messages.
        report: takes the line about a checkpoint that is skipped.

    Returns:
        The checkpoint and the result of ``use``; None if there are no checkpoints.

    Raises:
        UserError: there are checkpoints, but none can be used.
    """
    skipped: list[str] = []
    for path in resumable(work_dir):
        try:
            return path, use(path)
        except UnusableCheckpoint as error:
            skipped.append(path.name)
            report(f'{option}{error}; skipped')
    if skipped:
        ending = ', or choose another --work-dir to start from the beginning' if option else ''
        raise UserError(f'{option}no checkpoint in {work_dir} can be used ({listed(skipped)}); restore one{ending}')
    return None


def read_intact(path: str | Path) -> dict:
    """Read a checkpoint completely; see :func:`~mmkcla.weights.addresses.read_address`.

    Raises:
        UnusableCheckpoint: it is damaged, also by its checksum, or has NaN or infinite weights.
    """
    from ..weights.addresses import read_address  # imports torch
    try:
        return read_address(path)
    except UserError as error:
        raise UnusableCheckpoint(str(error)) from error


def read_resumable(path: str | Path) -> dict:
    """Read a checkpoint to resume from, and check all that does not depend on the config.

    Raises:
        UnusableCheckpoint: it is damaged, has no weights, or its training state is not a valid one.
    """
    from ..weights.training_state import check_training_state
    checkpoint = read_intact(path)
    check_training_state(checkpoint, str(path))
    if not isinstance(checkpoint.get('state_dict'), Mapping) or not checkpoint['state_dict']:
        raise UnusableCheckpoint(f'cannot resume from {path}: it has no weights (state_dict)')
    return checkpoint
