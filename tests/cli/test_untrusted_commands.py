"""The corpus of files that run code, through every sub-command and every argument that names a file."""
import functools
import http.server
import threading

import pytest
import torch
from hostile_files import CHECKPOINTS, DATA, write_hostile
from medical_files import write_zip
from PIL import Image

from mmkcla import config_file
from mmkcla.cli import COMMANDS, main

BASE = 'demo/kcla-resnet20_digits.py'
CORE = {name: CHECKPOINTS[name] for name in ('saved.pth', 'legacy.pth', 'pickle.pkl', 'pickle.safetensors')}
# Each sub-command with each argument that names a checkpoint.
CHECKPOINT_ARGUMENTS = {
    'train load_from': 'train {config} --no-checks --work-dir w --cfg-options load_from={file}',
    'train --resume': 'train {config} --no-checks --work-dir w --resume {file}',
    'train init_cfg': 'train {config} --no-checks --work-dir w --cfg-options '
                      "model.backbone.init_cfg=dict(type='Pretrained',checkpoint='{file}')",
    'test': 'test {config} {file} --no-checks --work-dir w',
    'infer': 'infer {config} {file} image.png --out-dir out',
    'export': 'export {config} {file} --image image.png --out o.onnx',
    'analyse keys': 'analyse keys {config} --images image.png --checkpoint {file} --out-dir out',
    'analyse decay': 'analyse decay {config} --images image.png --checkpoint {file} --out-dir out',
    'analyse weights': 'analyse weights {config} --images image.png --checkpoint {file} --out-dir out',
    'convert': 'convert {file} out.pth', 'convert --config': 'convert {file} out.pth --config {config}',
}
# And with each argument that names data.
DATA_ARGUMENTS = {
    'infer image': 'infer {config} good.pth {file} --out-dir out',
    'export --image': 'export {config} good.pth --image {file} --out o.onnx',
    'plan': 'plan {file} --out project', 'plan --annotations': 'plan photos --annotations {file} --out project',
    'data --split-file': 'data binary-seg photos --out set --split-file {file}',
    'data --groups': 'data binary-seg photos --out set --groups {file}',
    'data --palette': 'data binary-seg photos --out set --palette {file}',
    'data kvasir': 'data kvasir {file} --out set', 'data kvasir --split-file': 'data kvasir zips --out set '
                                                                               '--split-file {file}',
    'data isic2017': 'data isic2017 {file} --out set', 'data verify': 'data verify {file}',
    'config': 'train {file} --work-dir w', 'analyse flops': 'analyse flops {file} --out-dir out',
    'seeds': 'seeds {file} --seeds 0 --dry-run', 'sweep': 'sweep {file} --seeds 0 --dry-run',
}
NO_FILES = ('benchmark', 'demo', 'doctor')  # take no file of others


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('photos/images', 'photos/masks'):
        (tmp_path / name).mkdir(parents=True)
    for number in range(3):
        Image.new('RGB', (28, 28)).save(tmp_path / 'photos' / 'images' / f'{number}.png')
        mask = Image.new('L', (28, 28))
        mask.paste(255, (4, 4, 20, 20))
        mask.save(tmp_path / 'photos' / 'masks' / f'{number}.png')
    Image.new('L', (28, 28)).save('image.png')
    torch.save({'state_dict': {'w': torch.ones(1)}}, 'good.pth')
    return tmp_path


def test_the_tables_name_every_command():
    named = {line.split()[0] for table in (CHECKPOINT_ARGUMENTS, DATA_ARGUMENTS) for line in table.values()}
    assert {*COMMANDS} <= named | {*NO_FILES}


def run(words):
    """The exit code; argparse exits by itself."""
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize('place', CHECKPOINT_ARGUMENTS)
def test_checkpoint_arguments(folder, capfd, place):
    marker = folder / 'marker'
    kinds = CHECKPOINTS if place in ('infer', 'convert') else CORE
    for file in write_hostile(folder / 'files', kinds, marker):
        words = [word.format(config=config_file(BASE), file=file) for word in CHECKPOINT_ARGUMENTS[place].split()]
        code = run(words)
        error = capfd.readouterr().err
        assert code == 2 and not marker.exists(), (file.name, error)
        assert file.name in error.strip().splitlines()[-1], (file.name, error)


@pytest.mark.parametrize('place', DATA_ARGUMENTS)
def test_data_arguments(folder, capfd, place):
    """Exit code 2 (1 for a picture that cannot be read), or 0 for text that is valid for the argument."""
    marker = folder / 'marker'
    write_zip(folder / 'zips' / 'kvasir-seg.zip', {f'Kvasir-SEG/{kind}/a.png': (folder / 'image.png').read_bytes()
                                                   for kind in ('images', 'masks')})
    for file in write_hostile(folder / 'files', DATA, marker):
        if file.suffix == '.py' and place in ('config', 'analyse flops', 'seeds', 'sweep', 'data verify'):
            continue  # a Python config is a program
        words = [word.format(config=config_file(BASE), file=file) for word in DATA_ARGUMENTS[place].split()]
        code = run(words)
        said = ''.join(capfd.readouterr())
        assert code in (0, 1, 2) and not marker.exists(), (file.name, said)
        assert code == 0 or said.strip(), (file.name, said)


def test_hostile_files_inside_data_sets(folder, capfd):
    """Pickles under the names of images and masks, in folders and in zip files."""
    marker = folder / 'marker'
    DATA['pickle.png'](folder / 'photos' / 'images' / '0.png', marker)
    DATA['array.npy'](folder / 'photos' / 'masks' / '1.png', marker)
    code = run(['data', 'binary-seg', 'photos', '--out', 'set', '--split', 'train'])
    assert code == 0, capfd.readouterr()
    assert 'corrupt image' in (text := ''.join(capfd.readouterr())) and 'corrupt mask' in text
    (folder / 'set' / 'manifest.json').unlink()
    DATA['pickle.json'](folder / 'set' / 'manifest.json', marker)
    assert run(['data', 'verify', 'set']) == 1
    assert 'manifest' in ''.join(capfd.readouterr())
    members = {f'Kvasir-SEG/{kind}/a.png': (folder / 'photos' / 'images' / '0.png').read_bytes()
               for kind in ('images', 'masks')}
    write_zip(folder / 'zips' / 'kvasir-seg.zip', members)
    assert run(['data', 'kvasir', 'zips', '--out', 'kvasir']) == 2 and not marker.exists()


@pytest.fixture
def server(folder, monkeypatch):
    """A web server on this machine, with the checkpoints of the corpus."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(folder / 'hub'))
    monkeypatch.setenv('no_proxy', '*')
    web = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=str(folder / 'files')))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{web.server_port}'
    web.shutdown()
    web.server_close()


@pytest.mark.parametrize('scheme', ['http', 'file', 'path', 'unknown', 's3', 'petrel', 'jhu', 'pavi', 'hf-hub'])
def test_every_scheme(folder, server, capfd, scheme):
    marker = folder / 'marker'
    for file in write_hostile(folder / 'files', CORE, marker):
        address = {'http': f'{server}/{file.name}', 'file': f'file://{file}', 'path': str(file)}.get(
            scheme, f'{scheme}://{file}')
        assert run(['infer', str(config_file(BASE)), address, 'image.png', '--out-dir', 'out']) == 2
        error = capfd.readouterr().err.strip().splitlines()[-1]
        assert error.startswith('error: ') and file.name in error and not marker.exists(), error
