"""What the sub-commands share: their arguments, and the way from a config's name to one that a runner can take."""
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..paths import find_config
from ..utils.text import one_line
from .custom_imports import add_config_folder, import_custom_modules
from .hosts import without_import_noise

if TYPE_CHECKING:
    from mmengine.config import Config


def load_config(name: str, options: list[str]) -> 'Config':
    """Read the config called ``name``, merge ``options`` (``KEY=VALUE`` each) into it, and import its custom modules.

    Modules are found beside the config, too.

    Raises:
        UserError: no such config, one that cannot be read, a malformed option, or a module that cannot be imported.
    """
    path = find_config(name)
    add_config_folder(path)
    from mmengine.config import Config

    from ..ops import install
    with without_import_noise():  # a config may import modules of its own, which need mmcv's operators
        install()
    try:
        config = Config.fromfile(path, import_custom_modules=False)
    except UserError:
        raise
    except Exception as error:  # a config is a program: whatever it raises is in the user's hands
        root = error  # what mmengine wraps in advice of its own
        while root.__cause__ or root.__context__:
            root = root.__cause__ or root.__context__
        reason = one_line(f'{root} ({error})' if root is not error else str(error)) or 'no message'
        reason = _base_elsewhere(reason) or f'{type(error).__name__}: {reason}'
        raise UserError(f'cannot read the config {path}: {reason}') from error
    from .options import merge_options
    merge_options(config, options)
    import_custom_modules(config)
    return config


def require_parts(config: 'Config', keys: Sequence[str], purpose: str) -> None:
    """See that a config has what a command needs, each a dict (an evaluator may be a list of them).

    Raises:
        UserError: naming the first part that is missing or of another kind.
    """
    for key in keys:
        part = config.get(key)
        if part is None:
            raise UserError(f'config {config.filename} has no {key!r}; it cannot be {purpose}')
        if not hasattr(part, 'get') and not (key.endswith('_evaluator') and isinstance(part, (list, tuple))):
            raise UserError(f'config {config.filename}: {key} must be a dict, got {part!r}')


def _base_elsewhere(reason: str) -> str | None:
    """Where the bases are that mmengine has no ``package::`` for, though they are installed."""
    mmseg = importlib.util.find_spec('mmseg')
    if 'mmsegmentation is not installed' in reason and mmseg is not None:
        # to install it, as mmengine says, would overwrite the onedl line's files
        folder = Path(mmseg.origin).parent / '.mim' / 'configs'
        return f"mmengine does not find _base_ = 'mmseg::…' here; name the file by its path: _base_ = '{folder}/…'"
    if 'not support to load mmkcla config' in reason:
        return ("mmengine does not find _base_ = 'mmkcla::…'; write "
                "_base_ = __import__('mmkcla').config_file('…')")
    return None


def check_evaluators(config: 'Config', splits: tuple[str, ...] = ('val', 'test')) -> None:
    """Build the evaluators once, so that a wrong option is not found after hours; see too that ``save_best`` is among
    the metrics, where the evaluators know their names.

    Call it with the host libraries imported.

    Raises:
        UserError: for an option that an evaluator refuses, or an unknown ``save_best``.
    """
    import copy

    from mmengine.registry import METRICS
    for split in splits:
        evaluators = config.get(f'{split}_evaluator')
        if not evaluators or config.get(f'{split}_dataloader') is None:
            continue
        metrics = []
        with METRICS.switch_scope_and_registry(config.get('default_scope')) as registry:
            for evaluator in evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]:
                try:
                    metrics.append(registry.build(copy.deepcopy(evaluator)))
                except OSError:  # its files are another check's, and those of the test may be elsewhere
                    return
        names = [getattr(metric, 'names', None) for metric in metrics]
        checkpoint = (config.get('default_hooks') or {}).get('checkpoint') or {}
        if split == 'val' and all(names) and (wanted := checkpoint.get('save_best')) not in (None, 'auto'):
            from .hooks.checkpoint import check_save_best
            check_save_best([wanted] if isinstance(wanted, str) else wanted, [name for some in names for name in some])


def section(config: Any, key: str, default: Any = None) -> Any:
    """The part ``key`` of a config, after putting ``default`` (an empty dict) there if there is none.

    What it returns may be changed; ``setdefault`` of a config hands out a copy.
    """
    if config.get(key) is None:
        config[key] = default or {}
    return config[key]


def set_work_dir(config: 'Config', work_dir: str | None) -> Path:
    """Settle where the run writes (argument, else config, else ``work_dirs/<config>``) and see that it can.

    Raises:
        UserError: the folder cannot be made or written.
    """
    chosen = work_dir or config.get('work_dir') or os.path.join('work_dirs', Path(config.filename).stem)
    config.work_dir = str(chosen)
    check_writable(chosen, '--work-dir')
    return Path(chosen)


def check_writable(folder: str | os.PathLike, option: str) -> None:
    """Make ``folder`` if need be and write a file in it.

    Raises:
        UserError: naming the folder, the reason and the ``option`` to change it with.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f'cannot write to {folder}: {error.strerror}; choose another folder with {option}') from error
