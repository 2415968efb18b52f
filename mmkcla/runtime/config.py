"""Load configs, and check and complete them for a run."""
import importlib.util
import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..paths import find_config
from ..utils.text import one_line
from .custom_imports import add_config_folder, import_custom_modules
from .hosts import without_noise
from .untrusted import refuse_pickled_data

if TYPE_CHECKING:
    from mmengine.config import Config


def load_config(name: str, options: list[str]) -> 'Config':
    """Load the config ``name``, merge ``options`` (``KEY=VALUE`` each) into it, and import its custom modules.

    Modules next to the config file are found, too. From here on, nothing in this process loads a checkpoint unsafely
    (:func:`~mmkcla.weights.safe_loading.load_safely`).

    Raises:
        UserError: the config does not exist or cannot be read, an option is malformed, or a module cannot be imported.
    """
    path = find_config(name)
    add_config_folder(path)
    from mmengine.config import Config

    from ..ops import install
    from ..weights.safe_loading import load_safely
    load_safely()
    with without_noise():  # a config may import modules that need mmcv's operators
        install()
    try:
        config = Config.fromfile(path, import_custom_modules=False)
    except UserError:
        raise
    except Exception as error:  # a config is user code: it may raise anything
        root = error  # mmengine wraps the error in its own advice
        while root.__cause__ or root.__context__:
            root = root.__cause__ or root.__context__
        reason = one_line(f'{root} ({error})' if root is not error else str(error)) or 'no message'
        reason = _base_elsewhere(reason) or f'{type(error).__name__}: {reason}'
        raise UserError(f'cannot read the config {path}: {reason}') from error
    from .child_variables import apply_child_variables
    from .options import merge_options
    apply_child_variables(config, path)
    merge_options(config, options)
    refuse_pickled_data(config)
    from .checks.structure import check_types
    check_types(config)
    import_custom_modules(config)
    return config


def require_parts(config: 'Config', keys: Sequence[str], purpose: str) -> None:
    """Check that a config has the parts a command needs, each a dict (an evaluator may be a list of dicts).

    Raises:
        UserError: the first part that is missing or has the wrong type.
    """
    for key in keys:
        part = config.get(key)
        if part is None:
            raise UserError(f'config {config.filename} has no {key!r}; it cannot be {purpose}')
        if not hasattr(part, 'get') and not (key.endswith('_evaluator') and isinstance(part, (list, tuple))):
            raise UserError(f'config {config.filename}: {key} must be a dict, got {part!r}')


def _base_elsewhere(reason: str) -> str | None:
    """Explain where the base configs are if mmengine cannot resolve ``package::`` although the package is installed."""
    mmseg = importlib.util.find_spec('mmseg')
    if 'mmsegmentation is not installed' in reason and mmseg is not None:
        # mmengine advises to install it, which would overwrite the files of the onedl line
        folder = Path(mmseg.origin).parent / '.mim' / 'configs'
        return f"mmengine does not find _base_ = 'mmseg::…' here; use a path instead: _base_ = '{folder}/…'"
    if 'not support to load mmkcla config' in reason:
        return ("mmengine does not find _base_ = 'mmkcla::…'; write "
                "_base_ = __import__('mmkcla').config_file('…')")
    return None


def check_evaluators(config: 'Config', splits: tuple[str, ...] = ('val', 'test')) -> None:
    """Build the evaluators once, so that invalid options fail before the run. Also check that ``save_best`` is one of
    the metrics, if their names are known (:mod:`mmkcla.evaluation.names`).

    The host libraries must be imported already.

    Raises:
        UserError: an evaluator refuses an option, or ``save_best`` is unknown.
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
                except OSError:  # missing files are reported by the data checks; test files may be absent here
                    return
        if split == 'val':
            _check_metric_names(config, metrics)


def _check_metric_names(config: 'Config', metrics: Sequence[Any]) -> None:
    """Check ``save_best`` and the monitors of hooks and schedules against what the evaluators of a validation return,
    if all of them declare it."""
    from ..datasets.compare import labels_of
    from ..evaluation.names import metric_names
    from .checks.directions import check_monitors
    from .hooks.checkpoint import check_save_best
    labels = labels_of(config, 'val')
    names = [metric_names(metric, labels[0] if labels else None) for metric in metrics]
    if None in names:
        return
    available = list(itertools.chain.from_iterable(names))
    wanted = ((config.get('default_hooks') or {}).get('checkpoint') or {}).get('save_best')
    if wanted not in (None, 'auto'):
        check_save_best([wanted] if isinstance(wanted, str) else wanted, available)
    check_monitors(config, available)


def section(config: Any, key: str, default: Any = None) -> Any:
    """Return ``config[key]``; if it is missing or None, set it to ``default`` (an empty dict) first.

    The result can be modified in place; ``setdefault`` of a config returns a copy.
    """
    if config.get(key) is None:
        config[key] = default or {}
    return config[key]


def set_work_dir(config: 'Config', work_dir: str | None) -> Path:
    """Set the work dir (argument, else config, else ``work_dirs/<config>``) and check that it is writable.

    Raises:
        UserError: the folder cannot be created or is not writable.
    """
    chosen = work_dir or config.get('work_dir') or os.path.join('work_dirs', Path(config.filename).stem)
    config.work_dir = str(chosen)
    check_writable(chosen, '--work-dir')
    return Path(chosen)


def check_writable(folder: str | os.PathLike, option: str) -> None:
    """Create ``folder`` if necessary and check that a file can be written in it.

    Raises:
        UserError: the folder is not writable, or its name is not UTF-8; names the reason and the ``option`` to change.
    """
    try:
        os.fspath(folder).encode()
    except UnicodeEncodeError:  # the libraries that write logs and tables could not, some only at the end
        raise UserError(f'{option} {str(folder)!r} is not UTF-8; choose another folder') from None
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f'cannot write to {folder}: {error.strerror}; choose another folder with {option}') from error
