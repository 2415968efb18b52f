"""How the command line fails: one line for what the user can mend, and which errors those are."""
import errno
import os
import re
import shutil
import subprocess
import sys
import urllib.error
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import KCLA, error_of, write_coco, write_detector
from torch._utils import ExceptionWrapper

from mmkcla.cli import main
from mmkcla.cli.errors import explain, guarded
from mmkcla.compat import loaded_versions, version_notes
from mmkcla.errors import UserError
from mmkcla.paths import find_config
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import import_hosts
from mmkcla.runtime.options import parse_option
from mmkcla.runtime.unregistered import explain_unregistered

REPO = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def config(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('config')
    return write_detector(folder / 'tiny_errors.py', write_coco(folder / 'coco'), backbone=KCLA)


# -- start, and errors before anything heavy ---------------------------------------------------------------------------

def test_help_imports_nothing_heavy(tmp_path) -> None:
    code = ('import sys; sys.argv = ["train.py", "--help"]\n'
            'import runpy\n'
            'try:\n'
            f'    runpy.run_path({str(REPO / "tools" / "train.py")!r}, run_name="__main__")\n'
            'except SystemExit as stop:\n'
            '    assert stop.code == 0\n'
            'assert not {"torch", "mmengine", "numpy", "cv2"} & sys.modules.keys()')
    shown = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert '--auto-scale-lr' in shown.stdout and '--resume' in shown.stdout and shown.stderr == ''


def test_usage_lists_the_commands(capsys) -> None:
    with pytest.raises(SystemExit):
        main(['--help'])
    shown = capsys.readouterr().out
    assert 'train a model' in shown and 'evaluate a checkpoint' in shown and 'run inference on images' in shown


def test_config_that_is_not_there(tmp_path, monkeypatch, capsys, config) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(config, tmp_path / 'tiny.py')
    assert error_of(capsys, 'train', 'tiny_.py') == "no config 'tiny_.py'; did you mean tiny.py?"
    assert error_of(capsys, 'train', 'qqqq').startswith("no config 'qqqq' (searched the current folder")
    assert find_config('tiny') == Path('tiny.py')


def test_config_found_among_the_shipped_ones(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = tmp_path / 'shipped'
    for name in ('det/a_x.py', 'seg/b_x.py', 'det/same.py', 'seg/same.py', '_base_/models/base.py'):
        (shipped / name).parent.mkdir(parents=True, exist_ok=True)
        (shipped / name).touch()
    monkeypatch.setattr('mmkcla.paths.configs_root', lambda: shipped)
    assert find_config('a_x.py') == find_config('a_x') == find_config('det/a_x.py') == shipped / 'det' / 'a_x.py'
    with pytest.raises(UserError, match=r"no config 'c_x.py'; did you mean .*seg/b_x.py"):
        find_config('c_x.py')
    with pytest.raises(UserError, match=r"config 'same.py' is ambiguous: det/same.py, seg/same.py"):
        find_config('same.py')
    with pytest.raises(UserError, match='no config'):
        find_config('base.py')


@pytest.mark.parametrize(('text', 'says'), [
    ('a = (1', "SyntaxError: '(' was never closed"),
    ('a = b', "NameError: name 'b' is not defined"),
    ("_base_ = './gone.py'", 'gone.py'),
    ("_base_ = 'mmdet::gone/gone.py'", 'gone'),
])
def test_config_that_cannot_be_read(tmp_path, capsys, text, says) -> None:
    (tmp_path / 'a.py').write_text(text)
    message = error_of(capsys, 'train', tmp_path / 'a.py', '--work-dir', tmp_path / 'w')
    assert message.startswith(f'cannot read the config {tmp_path}/a.py: ') and says in message


@pytest.mark.parametrize(('package', 'file', 'says'), [
    ('mmseg', 'unet/unet-s5-d16_fcn_4xb4-40k_drive-64x64.py', ' here; use a path instead: _base_ = (.*)'),
    ('mmkcla', 'unet/unet-small_1xb8-300e_isic2018-256x256.py', '; write _base_ = (.*)'),
])
def test_bases_that_mmengine_does_not_find_are_named(tmp_path, capsys, package, file, says) -> None:
    (tmp_path / 'a.py').write_text(f"_base_ = '{package}::{file}'")
    message = error_of(capsys, 'train', tmp_path / 'a.py', '--work-dir', tmp_path / 'w')
    reason = f"cannot read the config {tmp_path}/a.py: mmengine does not find _base_ = '{package}::…'"
    base = re.fullmatch(reason + says, message)[1]
    (tmp_path / 'a.py').write_text(f'_base_ = {base.replace("…", file)}')
    assert load_config(tmp_path / 'a.py', []).model.type == 'EncoderDecoder'


def test_config_of_nothing(tmp_path, capsys) -> None:
    (tmp_path / 'a.py').write_text('a = 1')
    assert error_of(capsys, 'train', tmp_path / 'a.py') == \
        f"config {tmp_path}/a.py has no 'model'; it cannot be trained"


def test_options(tmp_path, capsys) -> None:
    assert parse_option('a.b=[1,(2,3)]') == ('a.b', [1, (2, 3)])
    assert parse_option('a=b=c') == ('a', 'b=c')
    (tmp_path / 'a.py').write_text('a = dict(b=1, c=[dict(d=1)])')
    config = load_config(str(tmp_path / 'a.py'), ['a.b=2', 'a.c.0.d=x', 'a.new=None'])
    assert config.a == dict(b=2, c=[dict(d='x')], new=None)
    assert capsys.readouterr().err == 'note: --cfg-options: a.new not in the config; added\n'
    assert error_of(capsys, 'train', tmp_path / 'a.py', '--cfg-options', 'a.b') == \
        "--cfg-options takes KEY=VALUE, got 'a.b'"
    assert "'[' was never closed" in error_of(capsys, 'train', tmp_path / 'a.py', '--cfg-options', 'a=[(1,2]')
    assert error_of(capsys, 'train', tmp_path / 'a.py', '--cfg-options', 'a.c.7.d=1').startswith(
        '--cfg-options a.c.7.d')


def test_work_dir_that_cannot_be_written(tmp_path, capsys) -> None:
    (tmp_path / 'file').touch()
    assert error_of(capsys, 'train', 'any.py', '--work-dir', tmp_path / 'file' / 'w') == \
        f'cannot write to {tmp_path}/file/w: Not a directory; choose another folder with --work-dir'


def test_checkpoint_that_is_not_there(tmp_path, capsys) -> None:
    assert error_of(capsys, 'test', 'any.py', tmp_path / 'a.pth') == f'no such checkpoint: {tmp_path}/a.pth'
    (tmp_path / 'epoch_1.pth').touch()
    assert error_of(capsys, 'infer', 'any.py', tmp_path, 'a.jpg') == \
        f'checkpoint {tmp_path} is a folder; it contains epoch_1.pth'
    assert error_of(capsys, 'train', 'any.py', '--resume', tmp_path / 'a.pth') == \
        f'--resume: no such checkpoint: {tmp_path}/a.pth'
    assert error_of(capsys, 'test', 'any.py', tmp_path / 'epoch_1.pth', '--out', 'a.json') == \
        '--out must end with .pkl or .pickle, got a.json'


def test_launchers(tmp_path, capsys, config, monkeypatch) -> None:
    monkeypatch.delenv('RANK', raising=False)
    assert error_of(capsys, 'train', config, '--work-dir', tmp_path, '--launcher', 'pytorch').startswith(
        '--launcher pytorch needs torchrun: tools/dist_train.sh CONFIG GPUS')
    if not torch.cuda.is_available():
        assert '--launcher slurm needs GPUs' in error_of(
            capsys, 'train', config, '--work-dir', tmp_path, '--launcher', 'slurm')
        assert error_of(capsys, 'train', config, '--work-dir', tmp_path, '--amp').startswith('--amp needs a GPU')


# -- which errors are the user's, and what is said about them ----------------------------------------------------------

def test_unregistered_types() -> None:
    import_hosts(['mmdet', 'mmseg'])
    assert explain_unregistered('ResNett', 'mmdet', 'model').startswith(
        "type='ResNett' is not in the model registry: did you mean ")
    assert 'ResNet' in explain_unregistered('ResNett', 'mmdet', 'model')
    assert explain_unregistered('KCLAResNet', 'mmdet', 'model') == \
        "type='KCLAResNet' is not in the model registry of scope 'mmdet': write type='mmkcla.KCLAResNet'"
    assert "write type='mmseg.EncoderDecoder'" in explain_unregistered('EncoderDecoder', 'mmdet', 'model')
    assert explain_unregistered('nopackage.Net', 'mmdet', 'model') == \
        "type='nopackage.Net' is not in the model registry: the package 'nopackage' is not installed"
    assert 'custom_imports = dict(imports=' in explain_unregistered('Zzyzxqqq', 'mmdet', 'model')


def test_mistyped_parts_of_a_config(config, tmp_path, capsys) -> None:
    run = ['train', config, '--work-dir', tmp_path, '--cfg-options']
    assert "type='mmkcla.KCLAResNt' is not in the model registry: did you mean mmkcla.KCLAResNet" in error_of(
        capsys, *run, 'model.backbone.type=mmkcla.KCLAResNt')
    assert "type='LoadAnnotation' is not in the transform registry: did you mean " in error_of(
        capsys, *run, 'train_dataloader.dataset.pipeline.1.type=LoadAnnotation')
    assert "type='CocoDatset' is not in the dataset registry: did you mean " in error_of(
        capsys, *run, 'train_dataloader.dataset.type=CocoDatset')
    message = error_of(capsys, *run, 'model.neck.out_chanels=3')
    assert message == "model.neck.out_chanels: FPN takes no 'out_chanels' (did you mean 'out_channels'?)"


@pytest.mark.parametrize(('error', 'says'), [
    (UserError('cannot read the image a.jpg: Error: odd: text'), 'cannot read the image a.jpg: Error: odd: text'),
    (FileNotFoundError(errno.ENOENT, 'No such file or directory', 'a.txt'), "No such file or directory: 'a.txt'"),
    (ZeroDivisionError('x'), None),
])
def test_errors_out_of_a_worker(error, says) -> None:
    try:
        raise error
    except Exception:
        carried = ExceptionWrapper(where='in DataLoader worker process 0')  # as torch's workers do
    with pytest.raises(type(error)) as caught:
        carried.reraise()
    assert 'in DataLoader worker process' in str(caught.value)
    assert explain(caught.value) == says


@pytest.mark.parametrize(('error', 'says'), [
    (UserError('two\n lines'), 'two lines'),
    (FileNotFoundError(errno.ENOENT, 'No such file or directory', 'a'), 'no such file or directory: a'),
    (PermissionError(errno.EACCES, 'Permission denied', 'a'), 'permission denied: a'),
    (OSError(errno.ENOSPC, 'No space left on device', 'a'),
     'no space left on device: a; free some space and run the command again (a training with --resume)'),
    (urllib.error.URLError('no network'), 'cannot download a file given by URL in the config: no network; '
     'without network access, use a local file, or train without pretrained weights: '
     '--cfg-options model.backbone.init_cfg=None'),
    (RuntimeError('DataLoader worker (pid 12) is killed by signal: Bus error.'), 'a data-loader worker was killed, '
     'usually because memory or shared memory (/dev/shm) ran out: reduce num_workers of the dataloaders'),
    (KeyError('key'), None),
    (TypeError("f() got an unexpected keyword argument 'x'"), None),
    (OSError(errno.EIO, 'Input/output error', 'a'), None),
    (ValueError('bug'), None),
])
def test_which_errors_are_explained(error, says) -> None:
    assert explain(error) == says


def test_data_set_that_cannot_be_downloaded(tmp_path, monkeypatch) -> None:
    from mmpretrain.datasets import CIFAR100, utils

    def no_network(*args: object) -> None:
        raise urllib.error.URLError('no network')

    monkeypatch.setattr(utils, 'download_url', no_network)
    with pytest.raises(urllib.error.URLError) as caught:
        CIFAR100(data_root=str(tmp_path / 'cifar100'), split='train', pipeline=[])
    assert explain(caught.value) == (f'cannot download the data set {CIFAR100.url}: no network; without network '
                                     f'access, put the file into {tmp_path}/cifar100/')


def test_faults_of_the_program_keep_their_stack(capsys) -> None:
    def fault(args: object) -> None:
        raise ValueError('bug')

    with pytest.raises(ValueError, match='bug'):
        guarded(fault, None)


def test_stack_on_request(capsys, monkeypatch) -> None:
    assert main(['train', 'gone.py']) == 2 and 'Traceback' not in capsys.readouterr().err
    assert main(['train', 'gone.py', '--traceback']) == 2
    shown = capsys.readouterr().err
    assert shown.startswith('Traceback') and shown.rstrip().splitlines()[-1].startswith("error: no config 'gone.py'")
    monkeypatch.setenv('MMKCLA_TRACEBACK', '1')
    assert main(['train', 'gone.py']) == 2 and 'Traceback' in capsys.readouterr().err
    monkeypatch.setenv('RANK', '1')
    assert main(['train', 'gone.py']) == 2 and 'error (rank 1): no config' in capsys.readouterr().err


# -- the shell scripts -------------------------------------------------------------------------------------------------

@pytest.mark.skipif(shutil.which('bash') is None, reason='needs bash')
def test_scripts_hand_on_their_arguments(tmp_path) -> None:
    srun = tmp_path / 'srun'
    srun.write_text('#!/bin/sh\necho "$@"\n')
    srun.chmod(0o755)
    environment = {**os.environ, 'PYTHON': 'echo', 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'PORT': '1234',
                   'GPUS': '4'}

    def run(script: str, *argv: str) -> subprocess.CompletedProcess:
        return subprocess.run(['bash', str(REPO / 'tools' / script), *argv], cwd=tmp_path, env=environment,
                              capture_output=True, text=True)

    shown = run('dist_train.sh', 'my config.py', '2', '--seed', '1').stdout
    assert shown == ('-m torch.distributed.run --nnodes=1 --node-rank=0 --nproc-per-node=2 --master-addr=127.0.0.1 '
                     f'--master-port=1234 {REPO}/tools/train.py my config.py --launcher pytorch --seed 1\n')
    assert f'{REPO}/tools/test.py c.py a.pth --launcher pytorch --out x.pkl' in run(
        'dist_test.sh', 'c.py', 'a.pth', '2', '--out', 'x.pkl').stdout
    shown = run('slurm_train.sh', 'gpu', 'job', 'c.py', 'w', '--amp').stdout
    assert '--partition=gpu --job-name=job --gres=gpu:4 --ntasks=4 --ntasks-per-node=4' in shown
    assert f'{REPO}/tools/train.py c.py --work-dir w --launcher slurm --amp' in shown
    shown = run('slurm_test.sh', 'gpu', 'job', 'c.py', 'a.pth').stdout
    assert f'{REPO}/tools/test.py c.py a.pth --launcher slurm' in shown
    for script in ('dist_train.sh', 'dist_test.sh', 'slurm_train.sh', 'slurm_test.sh'):
        without = run(script)
        assert without.returncode == 2 and f'tools/{script} ' in without.stderr


# -- versions ----------------------------------------------------------------------------------------------------------

def test_versions_outside_of_the_tested_range_are_named() -> None:
    modules = {name: SimpleNamespace(__version__=version) for name, version in (
        ('torch', '2.99.0+cpu'), ('mmengine', '0.10.12'), ('mmcv', '2.0.1'), ('mmdet', '3.5.1rc1'), ('other', '9'))}
    assert version_notes(modules) == ['torch 2.99.0+cpu is newer than the newest tested version (2.14)',
                                      'mmcv 2.0.1 is older than 2.1, the oldest supported version; it may not work']
    assert version_notes({'mmseg': SimpleNamespace()}) == []


def test_installed_versions_are_tested_ones() -> None:
    assert version_notes(loaded_versions('torch', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'gone')) == []


def test_host_that_is_not_installed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, 'mmseg.utils', None)
    with pytest.raises(UserError, match=r'^mmseg is not installed: pip install onedl-mmsegmentation'):
        import_hosts(['mmseg'])
