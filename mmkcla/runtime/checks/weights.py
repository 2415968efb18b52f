"""Read the checkpoints that a training starts from before the data are read."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..moved_variables import walk
from ..resume import read_resumable

if TYPE_CHECKING:
    from mmengine.config import Config

_KEYS = ('pretrained', 'teacher_ckpt')  # of models; besides init_cfg=dict(type='Pretrained', checkpoint=…)


def check_weights(config: Config, resume: str | None) -> None:
    """Check the checkpoints that a training loads: a local file is read, the names of published models are looked up,
    and nothing is downloaded.

    Args:
        config: its ``load_from`` and the initial weights in its model.
        resume: the checkpoint to resume from, ``'auto'`` for those in the work dir, or None.

    Raises:
        UserError: the first one that is missing, damaged or of an unknown scheme.
    """
    from ...weights.addresses import check_address, is_url
    if resume not in (None, 'auto'):  # of those in the work dir, the runner reads each once and falls back
        check_address(resume) if is_url(resume) else read_resumable(resume)
    for place, address in _addresses(config, with_start=resume is None):
        try:
            check_address(address)
        except UserError as error:
            raise UserError(f'{place}: {error}') from error


def _addresses(config: Config, with_start: bool) -> Iterator[tuple[str, str]]:
    """Yield the places of checkpoints in a config and their addresses, each address once."""
    found = {}
    if with_start and isinstance(config.get('load_from'), str):
        found[config.load_from] = 'load_from'
    for place, value in walk({'model': config.get('model')}, tuples=True):
        key = place.rpartition('.')[2]
        address: Any = value if key in _KEYS else None
        if isinstance(value, dict) and str(value.get('type')).endswith('Pretrained'):
            place, address = f'{place}.checkpoint', value.get('checkpoint')
        if isinstance(address, str):
            found.setdefault(address, place)
    yield from ((place, address) for address, place in found.items())
