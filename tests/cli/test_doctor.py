"""``mmkcla doctor`` as a command."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mmkcla.doctor
from mmkcla.cli import main
from mmkcla.doctor.finding import note, ok, problem
from mmkcla.doctor.report import lines_of, summary

REPO = Path(__file__).parents[2]
_BARE = ('import sys; sys.path.insert(0, sys.argv.pop(1)); from mmkcla.cli import main\n'
         "if __name__ == '__main__': sys.exit(main(sys.argv[1:]))")


def bare(*argv):
    """Run mmkcla in a Python without any package."""
    return subprocess.run([sys.executable, '-S', '-s', '-E', '-c', _BARE, str(REPO), *argv], capture_output=True,
                          text=True, timeout=400)


def test_all_checks_pass_here(capsys):
    """The tested environment has no problems; every check ran; nothing else is printed."""
    code = main(['doctor', '--json'])
    shown = capsys.readouterr()
    content = json.loads(shown.out)
    assert code == 0 and shown.err == '', [one for one in content['findings'] if one['level'] == 'problem']
    assert content['counts']['problem'] == 0 and sum(content['counts'].values()) == len(content['findings'])
    assert not [one for one in content['findings'] if one['value'].startswith('not checked')]
    found = {one['check']: one for one in content['findings']}
    sections = [one['section'] for one in content['findings']]
    assert list(dict.fromkeys(sections)) == ['Python', 'Packages', 'PyTorch', 'OpenMMLab', 'Registered', 'Machine',
                                             'Self-test']
    assert {'torch', 'torchvision', 'CUDA', 'line', 'mmdet', 'mmseg', 'mmpretrain', 'operators', 'model', 'metric',
            'layer attention', 'current folder', 'layers on cpu', 'detector on cpu', 'checkpoint'} <= found.keys()
    assert 'KCLAResNet' in found['model']['details']['names']
    assert found['model']['value'].startswith(f'{len(found["model"]["details"]["names"])}: ')


@pytest.mark.parametrize(('findings', 'code', 'last'), [
    ([ok('a', 'b')], 0, 'no problems'),
    ([ok('a', 'b'), note('a', 'b')], 0, 'no problems, 1 note'),
    ([problem('a', 'b', 'c'), note('a', 'b'), problem('a', 'b', 'c')], 1, '2 problems, 1 note'),
])
def test_exit_code(monkeypatch, capsys, findings, code, last):
    monkeypatch.setattr(mmkcla.doctor, 'examine', lambda: [('Section', one) for one in findings])
    assert main(['doctor']) == code
    shown = capsys.readouterr().out
    assert shown.startswith('Section\n  ') and shown.splitlines()[-1] == last == summary(findings)


def test_names(capsys):
    assert main(['doctor', 'mmkcla.KCLAResNet', 'mmdetection']) == 0
    assert main(['doctor', 'mmkcla.KCLAResNt', '--json']) == 1
    content = json.loads(capsys.readouterr().out.partition('\n{')[2].join(['{', '']))
    assert content['findings'][0]['remedy'] == 'did you mean mmkcla.KCLAResNet?'


def test_text_is_aligned():
    text = lines_of(problem('torch', 'a value of several words', 'a remedy of several words'), width=60)
    assert text.splitlines() == [
        '  problem  torch              a value of several words',
        '                              -> a remedy of several words']
    short = lines_of(note('torch', 'one two three four five six seven'), width=52).splitlines()
    assert len(short) == 2 and short[1].startswith(' ' * 30 + 'f')


def test_without_any_package():
    shown = bare('doctor', 'mmdet')
    assert shown.returncode == 1 and '-> pip install onedl-mmdetection' in shown.stdout and shown.stderr == ''
    shown = bare('doctor')
    assert shown.returncode == 1 and shown.stderr == ''
    assert "-> pip install 'torch>=2.1' 'torchvision>=0.16' 'filelock'" in ' '.join(shown.stdout.split())
    assert shown.stdout.splitlines()[-1].split()[1] == 'problems,'


def test_other_commands_without_any_package():
    shown = bare('--help')
    assert shown.returncode == 0 and "not available: No module named 'filelock'" in ' '.join(shown.stdout.split())
    shown = bare('test', 'config.py', 'a.pth', '--tta')
    assert shown.returncode == 2
    assert shown.stderr == "error: mmkcla test cannot start: No module named 'filelock'; run mmkcla doctor\n"
    shown = bare('train', 'unet-small_1xb8-300e_isic2018-256x256')
    assert shown.stderr == "error: the package 'mmengine' is not installed; run mmkcla doctor\n"


def test_unknown_arguments_are_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(['train', 'config.py', '--no-such-option'])
    assert stop.value.code == 2 and 'unrecognized arguments: --no-such-option' in capsys.readouterr().err
