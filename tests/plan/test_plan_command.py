"""The command's help, and the example of docs/plan.md."""
import re
from pathlib import Path

import pytest
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


def test_all_fatal_problems_are_in_one_line():
    with pytest.raises(UserError, match=r'^a: 2 \(x, y\); val: c: 4 \(1, 2, 3 and 1 more\)$'):
        refuse_fatal([Problem('a', ['x', 'y'], True), Problem('b', ['z']), Problem('c', list('1234'), True, 'val')])
    refuse_fatal([Problem('b', ['z'])])
