"""Find the checkpoint to resume from."""
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..utils.text import listed, note

if TYPE_CHECKING:
    from mmengine.config import Config


def set_resume(config: 'Config', wanted: str, work_dir: Path) -> None:
    """Set the checkpoint to resume from; ``'auto'`` without a checkpoint in the work dir starts from scratch."""
    checkpoint = find_resumable(work_dir) if wanted == 'auto' else wanted
    if checkpoint is None:
        note(f'--resume: no checkpoint in {work_dir}; starting from the beginning')
        return
    config.resume = True
    config.load_from = str(checkpoint)


def find_resumable(work_dir: Path) -> Path | None:
    """Return the newest intact checkpoint of a work dir, None if there are no checkpoints.

    This is the one named in ``last_checkpoint``, else the one with the highest number. If ``last_checkpoint`` names a
    file outside of the work dir, it is tried last. Each is read completely: damaged files, also by their checksum, and
    those with NaN or infinite weights are reported and skipped.

    Raises:
        UserError: there are checkpoints, but none is intact.
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
    from ..weights.addresses import read_address  # imports torch
    skipped: list[str] = []
    for path in dict.fromkeys(path for path in candidates if path.exists()):
        try:
            read_address(path)
        except UserError as error:
            skipped.append(path.name)
            note(f'--resume: {error}; skipped')
        else:
            return path
    if skipped:
        raise UserError(f'--resume: no checkpoint in {work_dir} can be used ({listed(skipped)}); restore one, or '
                        'choose another --work-dir to start from the beginning')
    return None
