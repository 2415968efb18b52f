"""Run a command in this process as in a fresh one: exit code, what was printed, a limit of time, no long training."""
from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile_files import Payload
from mmengine.registry import DefaultScope
from PIL import Image
from tiny import write_coco, write_detector

from mmkcla.cli import main
from mmkcla.datasets.segmentation.converters.folders import convert_folders

LIMIT = 60  # seconds for one command; the machine may be busy
STEPS = 1  # of a training that starts


class Enough(BaseException):
    """A training is running: its input was accepted."""


class Hangs(BaseException):
    """A command takes longer than :data:`LIMIT`."""


@dataclass
class Outcome:
    """What a command did.

    Attributes:
        code: its exit code; 0 also if a training ran :data:`STEPS` steps.
        text: what it printed on stderr and stdout.
        failure: an exception that left ``main``, or ''.
        runner: of a training.
    """

    code: int | None
    text: str
    failure: str = ''
    runner: Any = field(default=None, repr=False)

    @property
    def error(self) -> str:
        """The line ``error: …`` without its start."""
        lines = [line for line in self.text.splitlines() if line.startswith('error')]
        return lines[-1].partition(': ')[2] if lines else ''


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise :class:`Hangs` in the block after some seconds."""
    def stop(*_: Any) -> None:
        raise Hangs(f'more than {seconds} seconds')

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def short_trainings(seen: list[Any]) -> Iterator[None]:
    """Stop each training after :data:`STEPS` steps; its runner is appended to ``seen``."""
    from mmengine.model import BaseModel
    from mmengine.runner import Runner
    step, train = BaseModel.train_step, Runner.train
    count = [0]

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        if count[0] == STEPS:
            raise Enough
        count[0] += 1
        return step(self, *args, **options)

    def noted(self: Any) -> Any:
        seen.append(self)
        return train(self)

    BaseModel.train_step, Runner.train = counted, noted
    try:
        yield
    finally:
        BaseModel.train_step, Runner.train = step, train


def run(words: list[Any], limit: int = LIMIT) -> Outcome:
    """Run ``mmkcla`` with ``words``."""
    DefaultScope._instance_dict.clear()
    output, seen, failure, code = io.StringIO(), [], '', None
    handlers = [(logger, list(logger.handlers)) for logger in (sys.modules['logging'].getLogger(), )]
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output), short_trainings(seen):
        try:
            with limited(limit):
                code = main([str(word) for word in words])
        except SystemExit as stop:  # of argparse
            code = stop.code
        except Enough:
            code = 0
        except Hangs as error:
            failure = f'hangs: {error}'
        except Exception as error:
            failure = f'{type(error).__name__}: {error}'
    for logger, before in handlers:
        logger.handlers[:] = before
    return Outcome(code, output.getvalue(), failure, seen[0] if seen else None)


def check(outcome: Outcome, case: Any) -> None:
    """No exception, no hang; a refusal is one line that says what is wrong, without a traceback."""
    assert not outcome.failure, f'{case}: {outcome.failure[:500]}'
    assert outcome.code in (0, 1, 2, 3), (case, outcome.code)
    if outcome.code == 2 and 'usage: ' not in outcome.text:
        assert len(outcome.error) > 15, (case, outcome.text[-500:])
    assert 'Traceback (most recent call last)' not in outcome.text.replace('--- Logging error ---\nTraceback (most '
                                                                            'recent call last)', ''), case


def write_masks(folder: Path, count: int = 6) -> Path:
    """Images and masks of two classes."""
    rng = np.random.default_rng(0)
    for kind in ('images', 'masks'):
        (folder / kind).mkdir(parents=True)
    for number in range(count):
        mask = np.zeros((48, 48), np.uint8)
        mask[8:30, 10:30 + number] = 255
        Image.fromarray(mask).save(folder / 'masks' / f'{number}.png')
        image = rng.integers(0, 90, (48, 48, 3), dtype=np.uint8) + (mask[..., None] // 2)
        Image.fromarray(image.astype(np.uint8)).save(folder / 'images' / f'{number}.png')
    return folder


def write_workshop(folder: Path) -> Path:
    """Data and configs: coco, photos, set (prepared), det.py, cls.py."""
    write_coco(folder / 'coco')
    write_detector(folder / 'det.py', folder / 'coco', "'mmkcla.KCLAResNet', layer_attention=dict(head_channels=16)",
                   '\nmodel["backbone"].pop("norm_eval")\n')
    write_masks(folder / 'photos')
    convert_folders(folder / 'photos' / 'images', folder / 'photos' / 'masks', folder / 'set', split='4:1:1',
                    progress=False)
    (folder / 'cls.py').write_text('''
_base_ = __import__('mmkcla').config_file('demo/kcla-resnet20_digits.py')
train_dataloader = dict(batch_size=4)
''')
    return folder


def mutated(content: Any, rng: random.Random, values: Callable[[random.Random, Any], Any]) -> tuple[str, Any]:
    """A copy of JSON-like content with one place changed, deleted or doubled; and the place."""
    content = json.loads(json.dumps(content))
    holder, key, place = {'': content}, '', ''
    while isinstance(holder[key], (dict, list)) and holder[key] and (place == '' or rng.random() < 0.85):
        holder = holder[key]
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        place += f'.{key}'
    way = rng.choice(['change'] * 6 + ['delete', 'double'])
    if way == 'delete':
        del holder[key]
    elif way == 'double' and isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[key] = values(rng, holder[key])
    return f'{way} {place}', content


def save_model(config: Path, path: Path) -> Path:
    """A checkpoint of the random model of a config, as a training writes it."""
    from mmengine.config import Config
    from mmengine.registry import MODELS
    loaded = Config.fromfile(config)
    model = MODELS.build({**loaded.model, '_scope_': loaded.default_scope})
    torch.save({'meta': {'epoch': 1, 'iter': 2}, 'state_dict': model.state_dict()}, path)
    return path


def write_bad_files(folder: Path) -> None:
    """The files that the table of bad inputs names."""
    (folder / 'empty_folder').mkdir()
    for name, text in {
            'broken.py': 'a = (', 'empty.py': '', 'text.pth': 'no checkpoint\n', 'html.pth': '<!DOCTYPE html><html>',
            'image.txt': 'text', 'empty.json': '', 'list.json': '[]', 'deep.json': '[' * 200_000,
            'half.json': '{"images": [', 'plain.py': "_base_ = __import__('mmkcla').config_file("
            "'demo/resnet20_digits.py')\n", 'broken.png': '\x89PNG'}.items():
        (folder / name).write_text(text, encoding='utf-8')
    (folder / 'empty.pth').touch()
    Image.new('L', (8, 8), 99).save(folder / 'image.png')
    for name, content in {
            'list.pth': [1], 'nothing.pth': {}, 'other.pth': {'state_dict': {'w': torch.ones(1)}},
            'sparse.pth': {'w': torch.eye(2).to_sparse()}, 'meta.pth': {'w': torch.ones(2, device='meta')},
            'code.pth': {'w': Payload(folder / 'marker')}}.items():
        torch.save(content, folder / name)
    with zipfile.ZipFile(folder / 'zip.zip', 'w') as archive:
        archive.writestr('a.txt', 'text')
    shutil.copy(folder / 'zip.zip', folder / 'zip.pth')
    (folder / 'half.zip').write_bytes((folder / 'zip.zip').read_bytes()[:50])
