"""``mmkcla data``: help, exit codes, what is printed, and the configs of docs/own-data.md."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip('skimage')

from medical_files import encode
from own_folders import crops, labels, own, write

from mmkcla.cli import main

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    'isic2017': 'dataset_converters/isic2017.py', 'isic2018': 'dataset_converters/isic2018.py',
    'kvasir': 'dataset_converters/kvasir_seg.py', 'coins': 'dataset_converters/coins.py',
    'samples': 'dataset_converters/make_samples.py', 'motorcycle': 'dataset_converters/motorcycle.py',
    'binary-seg': 'dataset_converters/binary_seg.py', 'verify': 'misc/verify_dataset.py'}
SHORT = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=2',
         *(f'{loader}_dataloader.{key}' for loader in ('train', 'val', 'test')
           for key in ('num_workers=0', 'persistent_workers=False'))]


@pytest.mark.parametrize('name', SCRIPTS)
def test_help_of_each(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main(['data', name, '--help'])
    shown = capsys.readouterr().out
    assert stop.value.code == 0 and f'  mmkcla data {name} ' in shown.split('options:')[1]
    assert max(map(len, shown.splitlines())) <= 120
    if name == 'isic2018':
        assert 'Zip files: ISIC2018_Task1-2_Training_Input.zip' in shown and '2,594, 100 and 1,000 images' in shown


@pytest.mark.parametrize('name', SCRIPTS)
def test_scripts_run_in_a_checkout_that_is_not_installed(name, tmp_path):
    code = (f'import runpy, sys; sys.argv = ["script", "--help"]\n'
            f'try:\n    runpy.run_path({str(ROOT / "tools" / SCRIPTS[name])!r}, run_name="__main__")\n'
            'except SystemExit as stop:\n    assert stop.code == 0\n'
            'import mmkcla; print(mmkcla.__file__)\n'
            'assert not {"torch", "mmengine", "cv2"} & sys.modules.keys()')
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env={key: value for key, value in os.environ.items() if key != 'PYTHONPATH'})
    assert f'usage: mmkcla data {name}' in done.stdout
    assert done.stdout.splitlines()[-1] == str(ROOT / 'mmkcla' / '__init__.py')


def test_own_data_and_verify(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(own(tmp_path, [f'a{i}' for i in range(10)], '{}_mask.png'))
    assert main(['data', 'binary-seg', 'images', 'masks', '--out', 'out']) == 0
    printed = capsys.readouterr()
    assert printed.out == 'out: 8 train, 1 val, 1 test images with masks (8:1:1 drawn by seed 0)\n'
    assert printed.err == 'note: paired by name: NAME is the image of NAME_mask\n'
    assert main(['data', 'binary-seg', '.', '--out', 'out']) == 0 and capsys.readouterr().out == 'out: already there\n'
    assert main(['data', 'verify', 'out', '--near']) == 0
    assert capsys.readouterr().out.endswith('8 train, 1 val, 1 test pairs; no problems\n')
    (tmp_path / 'images/a3.jpg').write_bytes(b'')
    Path('out/masks/test').joinpath(os.listdir('out/masks/test')[0]).unlink()
    assert main(['data', 'verify', 'out']) == 1 and '1 val pairs; ' in capsys.readouterr().out
    assert main(['data', 'binary-seg', '.', '--out', 'other', '--split', 'train']) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        '1 problem (1 left out; all in problems.txt):', '  corrupt image (1): images/a3.jpg (empty file)']


@pytest.mark.parametrize(('arguments', 'message'), [
    (['binary-seg', 'a', 'b', 'c', '--out', 'o'], '3 folders given; give the folder of images and the folder of masks'),
    (['binary-seg', 'none', '--out', 'o'], 'no folder none/images: it is to hold the images'),
    (['samples', '--dataset', 'x', '--out', 'o'], "data set 'x': must be one of isic2017, isic2018, kvasir_seg"),
    (['coins', '--seed', '-1', '--out', 'o'], 'seed -1'), (['motorcycle', '--scale', '3'], 'scale=3'),
    (['verify', 'none'], 'no folder none'), (['isic2018', 'none'], 'no folder or zip file none'),
])
def test_errors_of_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(['data', *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == '' and printed.err.startswith(f'error: {message}') and printed.err.count('\n') == 1


def test_interruption_names_how_to_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(own(tmp_path, ['a', 'b']))

    def stop(*arguments):
        raise KeyboardInterrupt
    monkeypatch.setattr('mmkcla.datasets.segmentation.converters.writing.write_manifest', stop)
    assert main(['data', 'binary-seg', '.', '--out', 'out', '--split', 'train']) == 130
    assert capsys.readouterr().err == 'interrupted; run the same command again to resume (out.partial)\n'
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(['data', 'binary-seg', '.', '--out', 'out', '--split', 'train']) == 0


def documented(name: str) -> str:
    """A config of docs/own-data.md, with the paths of this checkout."""
    text = (ROOT / 'docs' / 'own-data.md').read_text(encoding='utf-8')
    code = re.search(f'<!-- test: {name} -->\n```python\n(.*?)```', text, re.DOTALL)[1]
    return code.replace("'configs/", f"'{ROOT}/configs/")


def test_documented_config_of_two_classes_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(own(tmp_path, [f'a{i}' for i in range(6)]))
    assert main(['data', 'binary-seg', '.', '--out', 'data/tissue', '--split', '2:2:2']) == 0
    (tmp_path / 'own.py').write_text(documented('own.py'))
    assert main(['train', 'own.py', '--work-dir', 'w', '--cfg-options', *SHORT]) == 0
    assert main(['test', 'own.py', 'w/epoch_1.pth', '--work-dir', 't', '--cfg-options', *SHORT]) == 0
    assert 0 <= json.loads((tmp_path / 't' / 'metrics.json').read_text())['DSC_pooled'] <= 1
    assert 'stain' in (tmp_path / 'w' / 'own.py').read_text()


def test_a_fold_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(own(tmp_path, [f'a{i}' for i in range(6)]))
    assert main(['data', 'binary-seg', '.', '--out', 'data/tissue', '--folds', '3']) == 0
    (tmp_path / 'own.py').write_text(documented('own.py'))
    folds = ['train_dataloader.dataset.fold=0', 'val_dataloader.dataset.fold=0']
    assert main(['train', 'own.py', '--work-dir', 'w', '--cfg-options', *SHORT, *folds]) == 0


def test_documented_config_of_more_classes_trains(tmp_path, monkeypatch):
    names = [f'a{i}' for i in range(6)]
    monkeypatch.chdir(own(tmp_path, names))
    write(tmp_path / 'masks', {f'{name}.png': encode(labels(crop)) for name, crop in zip(names, crops(6), strict=True)})
    assert main(['data', 'binary-seg', '.', '--out', 'data/tiles', '--split', '2:2:2', '--classes', 'dark', 'light',
                 'stain']) == 0
    (tmp_path / 'labels.py').write_text(documented('labels.py'))
    assert main(['train', 'labels.py', '--work-dir', 'w', '--cfg-options', *SHORT]) == 0
    assert main(['test', 'labels.py', 'w/epoch_1.pth', '--work-dir', 't', '--cfg-options', *SHORT]) == 0
    assert 0 < json.loads((tmp_path / 't' / 'metrics.json').read_text())['mIoU'] < 100
