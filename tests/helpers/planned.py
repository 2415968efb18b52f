"""What the tests of ``mmkcla plan`` have in common."""
import json
from pathlib import Path

from mmengine.config import Config

from mmkcla.cli import main


def plan(*argv: object) -> int:
    """Run ``mmkcla plan``."""
    return main(['plan', *map(str, argv)])


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob('*'))
            if path.is_file()}


def check_project(folder: Path, longest: int = 66) -> Config:
    """A project is complete, its config short and commented, its twin differs in the layer attention alone."""
    assert {'kcla.py', 'plain.py', 'samples.png', 'fingerprint.json', 'README.md'} <= {
        path.name for path in folder.iterdir()}
    text = (folder / 'kcla.py').read_text(encoding='utf-8')
    assert 30 <= text.count('\n') <= longest
    assert max(map(len, text.splitlines())) <= 120
    assert text.count('# ') >= 8
    config, twin = Config.fromfile(folder / 'kcla.py'), Config.fromfile(folder / 'plain.py')
    ours, plain = config.to_dict(), twin.to_dict()
    assert ours['model']['backbone'].pop('layer_attention')['type'] == 'KCLA'
    assert plain['model']['backbone'].pop('layer_attention') is None
    assert ours.pop('work_dir').endswith('/kcla') and plain.pop('work_dir').endswith('/plain')
    assert ours == plain
    readme = (folder / 'README.md').read_text(encoding='utf-8')
    assert all(f'mmkcla {command} ' in readme for command in ('train', 'test', 'sweep', 'infer'))
    return config


def train_and_test(config: Path, work_dir: Path, epochs: int, *options: str) -> dict[str, float]:
    """Train for a few epochs in place of those planned, test the last checkpoint, return the metrics."""
    changes = [f'train_cfg.max_epochs={epochs}', f'train_cfg.val_interval={epochs}',
               f'default_hooks.checkpoint.interval={epochs}', 'param_scheduler.0.end=4',
               f'param_scheduler.1.T_max={epochs}', *options]
    assert main(['train', str(config), '--work-dir', str(work_dir), '--seed', '0', '--cfg-options', *changes]) == 0
    assert main(['test', str(config), str(work_dir / f'epoch_{epochs}.pth'), '--work-dir', str(work_dir)]) == 0
    return json.loads((work_dir / 'metrics.json').read_text(encoding='utf-8'))
