"""One training with several seeds: what each has done and with which config, and the table of their results.

A seed's folder ``seed_<N>`` holds what ``mmkcla train`` and ``mmkcla test`` write, and ``seed.json``: the config's
parts that decide the training, whether it has come to its end, and the fingerprint of the test that gave
``metrics.json``.
"""
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...utils.files import write_json

RECORD, METRICS = 'seed.json', 'metrics.json'
_TRAINING = ('default_scope', 'custom_imports', 'runner_type', 'model', 'data_preprocessor', 'load_from',
             'train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr', 'randomness',
             'val_dataloader', 'val_cfg', 'val_evaluator', 'default_hooks', 'custom_hooks')
_TEST = ('test_dataloader', 'test_cfg', 'test_evaluator', 'tta_model', 'tta_pipeline')
# these change from machine to machine and nothing in the result
_OF_THE_MACHINE = ('num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor')


def training_parts(config: Mapping, **options: Any) -> dict[str, Any]:
    """What decides a training, as plain values: the config but for its seed, and options of the command line."""
    parts = {key: _plain(config[key]) for key in _TRAINING if config.get(key) is not None}
    randomness = {key: value for key, value in parts.pop('randomness', {}).items() if key != 'seed'}
    parts |= dict(randomness=randomness) if randomness else {}
    return parts | {name: value for name, value in options.items() if value}


def test_parts(config: Mapping, **options: Any) -> dict[str, Any]:
    """What decides a test beside the training."""
    return {key: _plain(config[key]) for key in _TEST if config.get(key) is not None} | options


def fingerprint(parts: Mapping) -> str:
    """Sixteen digits that differ if the parts do."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if key not in _OF_THE_MACHINE}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    name = getattr(value, '__qualname__', None)  # a class or a function in place of its name
    return f'{value.__module__}.{name}' if name else re.sub(r' at 0x[0-9a-f]+', '', repr(value))


def differences(old: Mapping, new: Mapping) -> list[str]:
    """The entries in which two configs differ: ``a.b: 1 there, 2 now``."""
    old, new = dict(_flat(old)), dict(_flat(new))
    missing = object()
    return [f'{key}: {_told(old.get(key, missing), missing)} there, {_told(new.get(key, missing), missing)} now'
            for key in dict.fromkeys([*old, *new]) if old.get(key, missing) != new.get(key, missing)]


def _told(value: Any, missing: object) -> str:
    return 'nothing' if value is missing else json.dumps(value)


def _flat(value: Any, prefix: str = '') -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield prefix, value
    for key, item in items:
        yield from _flat(item, f'{prefix}.{key}' if prefix else str(key))


class SeedFolder:
    """The folder of a seed and its record.

    Args:
        work_dir: the folder of all seeds.
        seed: the seed.
    """

    def __init__(self, work_dir: Path, seed: int) -> None:
        self.seed = seed
        self.path = work_dir / f'seed_{seed}'
        self.record: dict[str, Any] = _read_json(self.path / RECORD)

    def update(self, **values: Any) -> None:
        """Change the record, and write it whole."""
        self.record |= values
        write_json(self.path / RECORD, {'seed': self.seed, **self.record})

    @property
    def metrics(self) -> dict[str, Any]:
        """Of the last test; empty if there is none that can be read."""
        return _read_json(self.path / METRICS)

    @property
    def trained(self) -> bool:
        """Whether the training has come to its end."""
        return bool(self.record.get('trained'))

    def tested(self, test: str) -> bool:
        """Whether the metrics are of the whole training, by the test of this fingerprint."""
        return self.trained and self.record.get('test') == test and bool(self.metrics)

    def result(self) -> 'SeedResult':
        """The last test's, as that of a seed that is done."""
        return SeedResult(self.seed, 'done', str(self.record.get('checkpoint') or ''), self.metrics)

    def has_checkpoints(self) -> bool:
        """Whether there is anything that a training could go on from."""
        return any(self.path.glob('*.pth'))

    def check(self, training: Mapping) -> None:
        """See that the folder is new or of the same training.

        Raises:
            UserError: with what differs.
        """
        if not self.record:
            if self.has_checkpoints():
                raise UserError(f'{self.path} has checkpoints, but no {RECORD} that says of which config; choose '
                                'another --work-dir, or test them with --test-only')
            return
        found = differences(self.record.get('training') or {}, training)
        if found:
            more = f'; and {len(found) - 3} more' if len(found) > 3 else ''
            raise UserError(f'{self.path} is of another config ({"; ".join(found[:3])}{more}); choose another '
                            '--work-dir, or delete it to train anew')


def other_seeds(work_dir: Path, asked: Collection[int]) -> list[SeedFolder]:
    """The folders of seeds below ``work_dir`` but for those ``asked``, in order."""
    matches = (re.fullmatch(r'seed_(0|[1-9]\d*)', path.name) for path in work_dir.glob('seed_*'))
    return [SeedFolder(work_dir, seed) for seed in sorted({int(match[1]) for match in matches if match} - set(asked))]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@dataclass
class SeedResult:
    """What came of a seed; ``status`` is ``done``, ``pending``, or the reason of a failure."""

    seed: int
    status: str = 'pending'
    checkpoint: str = ''
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it was tried in vain."""
        return self.status not in ('done', 'pending')
