"""Check the settings of a config before a run."""
from typing import TYPE_CHECKING

from .containers import check_containers
from .keys import check_keys
from .kinds import check_kinds, check_names
from .numbers import check_numbers
from .parallel import check_parallel
from .structure import check_splits

if TYPE_CHECKING:
    from mmengine.config import Config

__all__ = ['check_keys', 'check_numbers', 'check_settings']


def check_settings(config: 'Config', training: bool = True) -> None:
    """Check kinds, names, numbers, the runner and (for a training) the splits, before the host libraries are imported.

    Without ``training``, numbers that only a training reads are not judged.

    Raises:
        UserError: the first entry that is wrong.
    """
    check_kinds(config)
    check_names(config)
    check_containers(config)
    if training:
        check_splits(config)
    check_numbers(config, training)
    check_parallel(config)
