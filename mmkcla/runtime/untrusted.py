"""Refuse configs that read data from pickles, by the key and the file."""
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

_ENDINGS = ('.pkl', '.pickle')
_PARTS = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'val_evaluator', 'test_evaluator', 'tta_pipeline')
_WRITTEN = ('out_file_path', 'outfile_prefix', 'out_dir', 'save_path')


def refuse_pickled_data(config: Any) -> None:
    """Check that no dataset, pipeline or evaluator of a config reads a pickle.

    Raises:
        UserError: the first that does.
    """
    for part in _PARTS:
        for place, key, value in _walk(config.get(part), part):
            if key == 'decode_backend' and value == 'pickle':
                raise UserError(f"{place}='pickle' would read data from pickles, which could run code; use "
                                "decode_backend='numpy' or 'nifti'")
            if isinstance(value, str) and value.lower().endswith(_ENDINGS) and key not in _WRITTEN:
                raise UserError(f'{place}={value!r} is a pickle, which could run code when it is read; convert it to '
                                'JSON')


def _walk(part: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (dotted key, last key, value) of all leaves."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, (list, tuple)) else ()
    for key, value in items:
        inner = f'{place}.{key}'
        if isinstance(value, (dict, list, tuple)):
            yield from _walk(value, inner)
        else:
            yield inner, str(key), value
