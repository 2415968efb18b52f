"""Variables that a child config sets over its bases: ``crop_size = (64, 64)``.

The entries of the bases that were derived from such a variable keep the old value, as mmengine replaces the variable
only. ``data_root`` and ``crop_size`` take their entries along; other variables without effect are refused.
"""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..utils.text import listed, note, plural
from .config_source import ConfigSource
from .entries import get
from .moved_variables import MOVED, data_places, keys_read, move_data, move_size, size_places
from .options import MAX_PLACES

if TYPE_CHECKING:
    from mmengine.config import Config


def apply_child_variables(config: Config, path: Path) -> None:
    """Move the entries of ``data_root`` and ``crop_size`` if the config sets these variables over its bases.

    A variable that the config reads itself is meant for the entries that it sets; the others keep their values.

    Raises:
        UserError: the config sets another variable whose value the bases have used already, so that it has no effect.
            A note instead if a custom import may read it, or if the file belongs to an installed library.
    """
    if config.get('model') is None:  # not the config of a run
        return
    for name, owner in spent_variables(ConfigSource(path)):
        if name == 'data_preprocessor' and config.model.get(name) is None:
            continue
        old = [value for value in owner.values(name) if value != _plain(config[name])]
        if old and name in MOVED:
            _move(config, path, name, old)
        elif old:
            _refuse(config, owner, name)


def spent_variables(source: ConfigSource) -> list[tuple[str, ConfigSource]]:
    """Return the variables that a config or one of its bases sets over its own bases without reading them itself,
    each with that file."""
    found = []
    above: set[str] = set()  # set by a file nearer to the config
    read = keys_read() - {'data_preprocessor'}  # read only if the model has none
    for child in (source, *source.all_bases()):
        of_bases = {name for base in child.all_bases() for name in base.assigned}
        found += [(name, child) for name in sorted((child.assigned & of_bases) - read - child.used - above)]
        above |= child.assigned
    return found


def _move(config: Config, path: Path, name: str, old: list[Any]) -> None:
    new, done = config[name], 0
    label = f'{path}: {name}'
    for value in old:
        if name == 'data_root' and data_places(config, value):
            count = move_data(config, value, new)
        else:
            count = len(move_size(config, value, new, label)) if name == 'crop_size' and size_places(
                config, value) else 0
        if count:
            note(f'{label}: replaced {value} of its base by {new} in {plural(count, "place")}')
        done += count
    if not done:
        note(f'{label} has no effect: no entry of the config has the value of its base, {listed(old)}')


def _refuse(config: Config, owner: ConfigSource, name: str) -> None:
    effects = {place: old for base in owner.bases for place, old in base.effects(name, config[name])}
    places = [place for place, old in effects.items() if place.split('.')[0] in keys_read()
              and get(config, place.split('.')) == old]
    if not places:
        return
    line = (f'{owner.path}: {name} has no effect, since its base has used it already. Set '
            f'{listed(places, MAX_PLACES)}')
    of_library = '.mim' in owner.path.absolute().parts  # some configs of the host libraries set such variables
    if config.get('custom_imports') is None and not of_library:
        raise UserError(line)
    note(line)


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, 'to_dict') else value
