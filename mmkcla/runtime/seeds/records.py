"""Records of what each seed has done, and with which config.

The folder ``seed_<N>`` of a seed contains the output of ``mmkcla train`` and ``mmkcla test``, and ``seed.json``: the
parts of the config that determine the training, whether the training has finished, and the fingerprint of the test that
produced ``metrics.json``.
"""
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...utils.files import parse_json, write_json
from ...utils.text import note, one_line

RECORD, METRICS = 'seed.json', 'metrics.json'
_TRAINING = ('default_scope', 'custom_imports', 'runner_type', 'model', 'data_preprocessor', 'load_from',
             'train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr', 'randomness',
             'val_dataloader', 'val_cfg', 'val_evaluator', 'default_hooks', 'custom_hooks')
_TEST = ('test_dataloader', 'test_cfg', 'test_evaluator', 'tta_model', 'tta_pipeline')
# these depend on the machine and do not affect the result
_MACHINE_KEYS = ('num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor')


def training_parts(config: Mapping, **options: Any) -> dict[str, Any]:
    """Return what determines a training, as plain values: the config without its seed, and command-line options."""
    parts = {key: _plain(config[key]) for key in _TRAINING if config.get(key) is not None}
    randomness = {key: value for key, value in parts.pop('randomness', {}).items() if key != 'seed'}
    parts |= dict(randomness=randomness) if randomness else {}
    return parts | {name: value for name, value in options.items() if value}


def test_parts(config: Mapping, **options: Any) -> dict[str, Any]:
    """Return what determines a test, in addition to the training."""
    return {key: _plain(config[key]) for key in _TEST if config.get(key) is not None} | options


def tested_on(config: Mapping) -> dict[str, Any]:
    """Return what the scores of a test depend on besides the model: the evaluator, and the data without pipelines."""
    return dict(evaluator=_plain(config['test_evaluator']), data=data_of(config, 'test'))


def data_of(config: Mapping, split: str) -> Any:
    """Return the data set of a split as plain values, without pipelines."""
    return _without_pipelines(_plain((config[f'{split}_dataloader'] or {}).get('dataset')))


def _without_pipelines(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_pipelines(value) for key, value in data.items() if key not in ('pipeline', '_scope_')}
    return [_without_pipelines(each) for each in data] if isinstance(data, list) else data


def fingerprint(parts: Mapping) -> str:
    """Return a hash of the parts: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if key not in _MACHINE_KEYS}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    name = getattr(value, '__qualname__', None)  # a class or a function instead of its name
    return f'{value.__module__}.{name}' if name else re.sub(r' at 0x[0-9a-f]+', '', repr(value))


def differences(old: Mapping, new: Mapping) -> list[str]:
    """List the entries in which two configs differ: ``a.b: 1 there, 2 now``."""
    old, new = dict(_flat(old)), dict(_flat(new))
    missing = object()
    return [f'{key}: {_shown(old.get(key, missing), missing)} there, {_shown(new.get(key, missing), missing)} now'
            for key in dict.fromkeys([*old, *new]) if old.get(key, missing) != new.get(key, missing)]


def _shown(value: Any, missing: object) -> str:
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
        work_dir: folder of all seeds.
        seed: random seed.
    """

    def __init__(self, work_dir: Path, seed: int) -> None:
        self.seed = seed
        self.path = work_dir / f'seed_{seed}'
        try:
            self.record: dict[str, Any] = _read_json(self.path / RECORD)
        except ValueError as error:
            raise UserError(f'{self.path / RECORD} cannot be read ({one_line(error)}); restore it, or move the folder '
                            'away to train the seed again') from None

    def update(self, **values: Any) -> None:
        """Update the record and write it atomically."""
        self.record |= values
        write_json(self.path / RECORD, {'seed': self.seed, **self.record})

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the last test; empty if there are none or they cannot be read."""
        try:
            return _read_json(self.path / METRICS)
        except ValueError:
            return {}

    def set_damaged_metrics_aside(self) -> None:
        """Rename metrics that cannot be read, so that the next test does not overwrite them, and report it."""
        path = self.path / METRICS
        try:
            _read_json(path)
        except ValueError as error:
            kept = path.with_name(f'{METRICS}.damaged')
            path.replace(kept)
            note(f'{path} cannot be read ({one_line(error)}); it is kept as {kept.name}, and the seed is tested again')

    @property
    def trained(self) -> bool:
        """Whether the training has finished."""
        return bool(self.record.get('trained'))

    def tested(self, test: str) -> bool:
        """Whether the training has finished and its metrics come from the test with this fingerprint."""
        return self.trained and self.record.get('test') == test and bool(self.metrics)

    def result(self) -> 'SeedResult':
        """Return the result of the last test of a finished seed."""
        return SeedResult(self.seed, 'done', str(self.record.get('checkpoint') or ''), self.metrics)

    def has_checkpoints(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any(self.path.glob('*.pth'))

    def check(self, training: Mapping) -> None:
        """Check that the folder is new or belongs to the same training.

        Raises:
            UserError: it does not; lists the differences.
        """
        if not self.record:
            if self.has_checkpoints():
                raise UserError(f'{self.path} has checkpoints but no {RECORD}, so their config is unknown; choose '
                                'another --work-dir, or test them with --test-only')
            return
        found = differences(self.record.get('training') or {}, training)
        if found:
            more = f'; and {len(found) - 3} more' if len(found) > 3 else ''
            raise UserError(f'{self.path} belongs to a different config ({"; ".join(found[:3])}{more}); choose another '
                            '--work-dir, or delete the folder to train again')


def other_seeds(work_dir: Path, asked: Collection[int]) -> list[SeedFolder]:
    """Return the seed folders in ``work_dir`` that are not in ``asked``, sorted by seed."""
    matches = (re.fullmatch(r'seed_(0|[1-9]\d*)', path.name) for path in work_dir.glob('seed_*'))
    found = []
    for seed in sorted({int(match[1]) for match in matches if match} - set(asked)):
        try:
            found.append(SeedFolder(work_dir, seed))
        except UserError as error:
            note(f'seed {seed} is not included: {one_line(error)}')
    return found


def _read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file, empty if there is none. Raises ValueError if it cannot be read."""
    try:
        content = parse_json(path.read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ValueError(str(error)) from None
    if not isinstance(content, dict):
        raise ValueError('not a JSON object')
    return content


@dataclass
class SeedResult:
    """Result of a seed; ``status`` is ``done``, ``pending``, or the reason of a failure."""

    seed: int
    status: str = 'pending'
    checkpoint: str = ''
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether training or test failed."""
        return self.status not in ('done', 'pending')
