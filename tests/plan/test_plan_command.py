"""The command's help, and the example of docs/plan.md."""
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image
from planned import plan

from mmkcla.datasets.detection import coins
from mmkcla.errors import UserError
from mmkcla.plan import machine, project
from mmkcla.plan.fingerprint import Problem, refuse_fatal

DOCS = Path(__file__).parents[2] / 'docs' / 'plan.md'


@pytest.mark.parametrize('task', ['detection', 'segmentation', 'classification'])
def test_help_has_two_examples(task, capsys):
    with pytest.raises(SystemExit) as stop:
        plan(task, '--help')
    assert stop.value.code == 0
    examples = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f'  mmkcla plan {task} ')]
    assert len(examples) == 2 and all('--out' in line for line in examples)


def test_the_documented_example_is_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, '_ram', lambda: 23)
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    coins.convert(tmp_path / 'coins')
    files = [tmp_path / 'coins' / 'annotations' / f'instances_{split}2017.json' for split in ('train', 'val')]
    assert plan('detection', '--images', tmp_path / 'coins', '--annotations', *files, '--out', tmp_path / 'out') == 0
    shown = re.findall(r'```python\n(.*?)```', DOCS.read_text(encoding='utf-8'), re.DOTALL)
    written = [(tmp_path / 'out' / name).read_text(encoding='utf-8') for name in ('kcla.py', 'plain.py')]
    place = tmp_path.resolve().as_posix()
    # the first lines hold the path and are wrapped by its length
    assert [text.split('\n_base_')[1] for text in shown] == [
        text.replace(f'{place}/coins', '/data/coins').split('\n_base_')[1] for text in written]


def test_commands_quote_what_a_shell_would_split(tmp_path):
    lines = dict(project.commands(tmp_path / 'my project', Path('data/images/test')))
    assert lines['Train'] == (f"mmkcla train '{tmp_path}/my project'/kcla.py --work-dir "
                              "'work_dirs/my project'/kcla")
    assert f"'{tmp_path}/my project/data/images/test'" in lines['Predict']
    assert lines['Resume after an interruption'] == f"{lines['Train']} --resume"
    assert lines['Test the best checkpoint'] == (
        f"mmkcla test '{tmp_path}/my project'/kcla.py 'work_dirs/my project'/kcla/best_*.pth --work-dir "
        "'work_dirs/my project'/kcla")


def class_folders(root, splits):
    rng = np.random.default_rng(0)
    for split in splits:
        for name in ('cat', 'dog'):
            (root / split / name).mkdir(parents=True)
            for number in range(4):
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(root / split / name / f'{number}.png')


def test_a_project_without_a_test_set_says_that_its_figures_are_optimistic(tmp_path, capsys):
    class_folders(tmp_path / 'two', ['train', 'val'])
    class_folders(tmp_path / 'three', ['train', 'val', 'test'])
    warning = ('there is no test set: the checkpoint is chosen on the images it is tested on, and the figures are '
               'optimistic; for a final result, add a folder test with the classes')
    for name, expected in (('two', 1), ('three', 0)):
        assert plan('classification', '--images', tmp_path / name, '--out', tmp_path / f'{name} out') == 0
        assert capsys.readouterr().out.count(f'warning: {warning}') == expected
        readme = (tmp_path / f'{name} out' / 'README.md').read_text()
        assert readme.count(warning) == expected
        assert 'The best checkpoint, `best_*.pth`, is that with the highest `accuracy/top1` on the validation' in readme
        configs = [Config.fromfile(tmp_path / f'{name} out' / f'{each}.py') for each in ('kcla', 'plain')]
        assert [config.work_dir for config in configs] == [f'work_dirs/{name} out/{each}' for each in ('kcla', 'plain')]


def test_test_images_that_are_in_val_are_reported(tmp_path, capsys):
    class_folders(tmp_path / 'data', ['train', 'val', 'test'])
    shutil.copy(tmp_path / 'data/val/cat/0.png', tmp_path / 'data/test/cat/0.png')
    assert plan('classification', '--images', tmp_path / 'data', '--out', tmp_path / 'out') == 0
    assert ('warning: test: images that are in val, too (the checkpoint is chosen on them, so the figures are '
            'optimistic): 1 (0.png)') in capsys.readouterr().out


def test_a_project_is_not_replaced_without_a_word(tmp_path, capsys):
    class_folders(tmp_path / 'data', ['train'])
    command = ['classification', '--images', tmp_path / 'data', '--out', tmp_path / 'out']
    assert plan(*command) == 0 and plan(*command) == 2
    assert 'out already contains a project; --overwrite replaces it and all changes' in capsys.readouterr().err


def test_all_fatal_problems_are_in_one_line():
    with pytest.raises(UserError, match=r'^a: 2 \(x, y\); val: c: 4 \(1, 2, 3 and 1 more\)$'):
        refuse_fatal([Problem('a', ['x', 'y'], True), Problem('b', ['z']), Problem('c', list('1234'), True, 'val')])
    refuse_fatal([Problem('b', ['z'])])
