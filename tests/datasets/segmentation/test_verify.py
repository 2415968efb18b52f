"""A prepared data set is checked: each kind of damage is found, by a full check and, where it can, by a quick one."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip('skimage')

from medical_files import encode, hashes, picture
from tiny import error_of

from mmkcla.cli import main
from mmkcla.datasets.segmentation import samples
from mmkcla.datasets.segmentation import verify as verify_module
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.converters.splits import names_digest
from mmkcla.datasets.segmentation.folder_report import folder_report
from mmkcla.datasets.segmentation.verify import check, difference_hash, summary, verify, verify_once
from mmkcla.datasets.sheet import colour
from mmkcla.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
COUNT = (20, 4, 4)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp('verify')
    samples.make_samples(folder / 'raw', count=COUNT)
    convert_isic2017(folder / 'raw', folder / 'out')
    return folder / 'out'


@pytest.fixture
def data(prepared, tmp_path):
    shutil.copytree(prepared, tmp_path / 'data')
    return tmp_path / 'data'


def change(path: Path, at: int = -40) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def remask(path: Path, factor: int) -> None:
    path.write_bytes(encode(np.asarray(Image.open(path)) * factor))


TRAIN, VAL, TEST = ('images/train/ISIC_0000000.jpg', 'images/val/ISIC_0000140.jpg', 'images/test/ISIC_0000168.jpg')
MASK = 'masks/train/ISIC_0000000.png'


def test_a_whole_data_set(prepared):
    before = hashes(prepared)
    for options in ({}, {'quick': True}, {'near': True}, {'workers': 1}):
        report = check(prepared, **options)
        assert not report.problems and not report.notes and report.counts == {'train': 20, 'val': 4, 'test': 4}
        assert summary(report) == '20 train, 4 val, 4 test pairs; no problems'
    assert hashes(prepared) == before


@pytest.mark.parametrize(('damage', 'problems'), [
    (lambda d: (d / MASK).unlink(), [f'{MASK}: is in the manifest, but not there', f'{TRAIN}: no mask {MASK}']),
    (lambda d: (d / TRAIN).unlink(), [f'{TRAIN}: is in the manifest, but not there',
                                      f'{MASK}: no image images/train/ISIC_0000000.*']),
    (lambda d: (d / TRAIN).write_bytes(b''), [f'{TRAIN}: empty file']),
    (lambda d: (d / TRAIN).write_bytes((d / TRAIN).read_bytes() + b'x'), [
        f'{TRAIN}: has ']),
    (lambda d: (d / 'images/val/extra.jpg').write_bytes(picture()), [
        'images/val/extra.jpg: is not in the manifest', 'images/val/extra.jpg: no mask masks/val/extra.png']),
    (lambda d: (d / 'masks/val/extra.png').write_bytes(picture()), [
        'masks/val/extra.png: is not in the manifest', 'masks/val/extra.png: no image images/val/extra.*']),
    (lambda d: (d / 'images/val/._a').touch(), [
        'images/val/._a: is not in the manifest', 'images/val/._a: empty file']),
    (lambda d: shutil.copy(d / TRAIN, (d / TRAIN).with_suffix('.jpeg')), [
        'images/train/ISIC_0000000.jpeg: is not in the manifest',
        f'images/train/ISIC_0000000.jpeg: the same name as {TRAIN}']),
    (lambda d: (d / 'manifest.json').write_text('{'), ['manifest.json: it is damaged (']),
    (lambda d: (d / 'manifest.json').write_text('{}'), ['manifest.json: ']),
    (lambda d: remask(d / MASK, 255), [f'{MASK}: a 0/255 mask (values 0, 255); 0 and 1 are expected, and 255 means "ig',
                                       f'{MASK}: has ']),
    (lambda d: remask(d / MASK, 3), [f'{MASK}: the values 0, 3, where 0 and 1 are expected', f'{MASK}: has ']),
    (lambda d: (d / MASK).write_bytes(encode(np.ones((7, 9)))), [f'{MASK}: size mismatch (mask 9x7, image 115x136)',
                                                                 f'{MASK}: has ']),
    (lambda d: (d / MASK).write_bytes(encode(np.dstack([np.eye(136, 115), np.zeros((136, 115, 2))]))), [
        f'{MASK}: coloured mask (red, green and blue differ by up to 1', f'{MASK}: has ']),
    (lambda d: (d / MASK).write_bytes((d / MASK).read_bytes()[:-20]), [
        f'{MASK}: corrupt mask (', f'{MASK}: has ']),
    (lambda d: (d / TRAIN).write_bytes(b'no picture'), [
        f'{TRAIN}: c', f'{TRAIN}: has 10 bytes, ']),
], ids=['no mask', 'no image', 'empty', 'size', 'extra image', 'extra mask', 'hidden', 'same name', 'manifest',
        'foreign', '0/255', 'values', 'mask size', 'colour', 'cut mask', 'no picture'])
@pytest.mark.parametrize('quick', [False, True])
def test_damage_that_both_checks_find(data, damage, problems, quick):
    damage(data)
    found = verify(data, quick=quick)
    for problem in problems:
        assert any(line.startswith(problem) for line in found), found
    hashed = [line for line in found if line.endswith(': its content is not that of the manifest (sha256)')]
    assert len(found) == len(problems) + len(hashed) and all(not quick or 'masks/' in line for line in hashed)


@pytest.mark.parametrize(('damage', 'problems'), [
    (lambda d: change(d / TRAIN), [f'{TRAIN}: its content is not that of the manifest (sha256)']),
    (lambda d: (d / VAL).write_bytes((d / VAL).read_bytes()[:-300] + b'\0' * 300), [
        f'{VAL}: corrupt image (', f'{VAL}: its content is not that of the manifest (sha256)']),
], ids=['one bit', 'cut image'])
def test_damage_that_only_a_full_check_finds(data, damage, problems):
    damage(data)
    assert not verify(data, quick=True)
    found = verify(data)
    assert len(found) == len(problems)
    assert all(line.startswith(problem) for line, problem in zip(found, problems, strict=True))


def test_before_a_run_every_file_is_looked_at_once_and_anew_when_one_changed(data, monkeypatch):
    looked = []
    check = verify_module.check
    monkeypatch.setattr(verify_module, 'check', lambda root, quick=False, **options: (
        looked.append('quick' if quick else 'full'), check(root, quick))[1])
    assert verify_once(data) == verify_once(data) == [] and looked == ['full', 'quick']
    (data / '.verified').write_bytes(b'\xff torn')
    assert verify_once(data) == [] and looked.pop() == 'full'
    change(data / TRAIN)  # one bit
    expected = [f'{TRAIN}: its content is not that of the manifest (sha256)']
    assert verify_once(data) == verify_once(data) == expected and looked[2:] == ['full', 'full']
    monkeypatch.setenv('RANK', '1')
    assert verify_once(data) == [] and looked[4:] == ['quick']


@pytest.mark.parametrize('orientation', [1, 3, 6])
def test_image_with_an_orientation_that_its_size_does_not_show(tmp_path, capsys, orientation):
    for name, array in (('images', np.zeros((8, 8, 3), np.uint8)), ('masks', np.eye(8, dtype=np.uint8))):
        (tmp_path / name / 'train').mkdir(parents=True)
        exif = Image.Exif()
        exif[0x0112] = orientation if name == 'images' else 1
        Image.fromarray(array).save(tmp_path / name / 'train' / 'a.png', exif=exif)
    line = '1 image turned or mirrored by the EXIF orientation, with a mask of the same size without one'
    assert any(line in note for note in verify_module.check(tmp_path).notes) == (orientation != 1)
    for _ in range(2):  # the second check is the quick one
        assert verify_once(tmp_path) == []
        assert (line in capsys.readouterr().err) == (orientation != 1)


def test_what_is_kept_of_a_check_is_no_hindrance_to_a_new_conversion(data, tmp_path):
    assert not verify_once(data) and (data / '.verified').is_file()
    samples.make_samples(tmp_path / 'raw', count=(4, 2, 2))
    convert_isic2017(tmp_path / 'raw', data, overwrite=True)
    assert not (data / '.verified').exists() and not verify(data)


def test_a_training_refuses_one_changed_bit(data, tmp_path, capsys):
    change(data / TRAIN)
    assert error_of(capsys, 'train', 'unet-kcla-small_1xb8-300e_isic2017-256x256', '--work-dir', tmp_path / 'w',
                    '--cfg-options', f'data_root={data}') == (
        f'the data set {data} is damaged: {TRAIN}: its content is not that of the manifest (sha256); run '
        f'mmkcla data verify {data}, or skip the checks with --no-checks')


def test_a_changed_mask_of_a_quick_check(data):
    change(data / MASK)
    assert f'{MASK}: its content is not that of the manifest (sha256)' not in verify(data, quick=True)
    assert f'{MASK}: its content is not that of the manifest (sha256)' in verify(data)


def test_duplicates_across_splits(data):
    content = json.loads((data / 'manifest.json').read_text())
    shutil.copy(data / TRAIN, data / VAL)
    shutil.copy(data / MASK, data / 'masks/val/ISIC_0000140.png')
    found = verify(data)
    assert f'{TRAIN}: the same image as {VAL}, in another split' in found
    entry = next(entry for entry in content['files'] if entry['image'] == TRAIN)
    for other in content['files']:
        if other['image'] == VAL:
            other.update({key: entry[key] for key in ('image_bytes', 'image_sha256', 'mask_bytes', 'mask_sha256')})
    (data / 'manifest.json').write_text(json.dumps(content))
    for quick in (False, True):
        assert verify(data, quick=quick) == [f'{TRAIN}: the same image as {VAL}, in another split']


def test_near_duplicates(data):
    (data / 'manifest.json').unlink()
    image = Image.open(data / TRAIN)
    image.save(data / TEST, quality=40)
    shutil.copy(data / MASK, data / 'masks/test/ISIC_0000168.png')
    image.resize((230, 272)).save(data / VAL, quality=90)
    Image.open(data / MASK).resize((230, 272), Image.Resampling.NEAREST).save(data / 'masks/val/ISIC_0000140.png')
    assert not verify(data)
    found = verify(data, near=True)
    for first, second in ((TRAIN, VAL), (TRAIN, TEST), (VAL, TEST)):
        assert any(line.startswith(f'{first}: looks like {second}, in another split (') for line in found)
    assert len(found) == 3
    look = difference_hash(image)
    assert look.shape == (256,) and look.dtype == bool
    assert (look != difference_hash(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))).sum() > 60
    with pytest.raises(UserError, match='a quick check decodes no images: near-duplicates need a full one'):
        verify(data, quick=True, near=True)


def test_without_manifest_and_empty_masks(data):
    (data / 'manifest.json').unlink()
    (data / MASK).write_bytes(encode(np.zeros((136, 115))))
    (data / 'images' / 'train' / '.DS_Store').touch()
    report = check(data)
    assert report.problems == [] and report.empty_masks == 1
    assert report.notes == ['there is no manifest.json: contents cannot be compared with what was converted',
                            '1 of 28 masks that were looked into has no foreground']


def test_folders_that_are_no_data_set(tmp_path):
    with pytest.raises(UserError, match=r'no folder \S+none; create it with mmkcla data'):
        verify(tmp_path / 'none')
    (tmp_path / 'images').mkdir()
    with pytest.raises(UserError, match='is not a prepared data set: it needs the folders images and masks'):
        verify(tmp_path)
    (tmp_path / 'masks').mkdir()
    assert verify(tmp_path, quick=True) == ['images: no images (.jpg .jpeg .png .bmp .webp .tif .tiff .ppm) in it']


@pytest.mark.parametrize('quick', [False, True])
def test_files_that_lie_in_no_split(data, quick):
    for kind, suffix in (('images', 'jpg'), ('masks', 'png')):
        for folder in ('', 'fold0', 'train/deep'):
            (data / kind / folder).mkdir(exist_ok=True)
            shutil.copy(data / (TRAIN if kind == 'images' else MASK), data / kind / folder / f'a.{suffix}')
    (data / 'manifest.json').unlink()
    report = check(data, quick=quick)
    assert report.problems == [
        f'{kind}/{folder}a.{suffix}: lies in none of {kind}/train, {kind}/val, {kind}/test'
        for kind, suffix in (('images', 'jpg'), ('masks', 'png')) for folder in ('', 'fold0/', 'train/deep/')]
    assert report.counts == {'train': 20, 'val': 4, 'test': 4}


def test_a_flat_layout_is_no_split(tmp_path):
    for kind, suffix, content in (('images', 'jpg', picture()), ('masks', 'png', encode(np.ones((10, 12))))):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f'a.{suffix}').write_bytes(content)
    report = check(tmp_path)
    assert report.counts == {} and summary(report) == 'no pairs; 2 problems'
    assert report.problems[0] == 'images/a.jpg: lies in none of images/train, images/val, images/test'


def edited(key, value):
    """Damage: the manifest with another value at ``key``."""
    def damage(content):
        *above, last = key
        for name in above:
            content = content[name]
        content[last] = value
    return damage


@pytest.mark.parametrize(('damage', 'problems'), [
    (edited(['counts', 'val'], 400), ['counts of val: 400, but 4 by the files it lists']),
    (edited(['counts'], None), [f'counts of {split}: none, but {count} by the files it lists'
                                for split, count in (('test', 4), ('train', 20), ('val', 4))]),
    (edited(['empty_masks'], 3), ['empty_masks of all splits: 3, but 0 by the files it lists']),
    (edited(['names_sha256', 'test'], ''), ['names_sha256 of test: none, but DIGEST by the files it lists']),
    (edited(['names_sha256', 'test'], 'f' * 64), ['names_sha256 of test: ffffffffffff, but DIGEST by the files']),
    (edited(['names_sha256', 'fold'], 'f' * 64), ['names_sha256 of fold: ffffffffffff, but none by the files']),
    (lambda content: content['files'].append(next(entry for entry in content['files'] if entry['image'] == TRAIN)), [
        'ISIC_0000000 is listed twice', 'counts of train: 20, but 21 by the files it', 'names_sha256 of train: ']),
], ids=['count', 'no counts', 'empty masks', 'no digest', 'digest', 'extra digest', 'twice'])
@pytest.mark.parametrize('quick', [False, True])
def test_a_damaged_manifest(data, damage, problems, quick):
    content = json.loads((data / 'manifest.json').read_text())
    digest = names_digest(entry['name'] for entry in content['files'] if entry['split'] == 'test')
    damage(content)
    (data / 'manifest.json').write_text(json.dumps(content))
    found = verify(data, quick=quick)
    assert len(found) == len(problems)
    for line, problem in zip(found, sorted(problems), strict=True):
        assert line.startswith(f'manifest.json: {problem.replace("DIGEST", digest[:12])}')


def test_duplicates_in_one_split_are_counted(data):
    (data / 'manifest.json').unlink()
    for number, text in ((1, '1 image is there twice in one split'), (2, '2 images are there twice in one split')):
        shutil.copy(data / TRAIN, data / f'images/train/copy{number}.jpg')
        shutil.copy(data / MASK, data / f'masks/train/copy{number}.png')
        assert text in check(data).notes


@pytest.mark.parametrize('path', ['../x.jpg', 'images/train/../../../x.jpg', '/etc/passwd', 'images/val/a.jpg', 7])
def test_manifest_that_points_elsewhere(data, path):
    content = json.loads((data / 'manifest.json').read_text())
    content['files'][0]['image'] = path
    (data / 'manifest.json').write_text(json.dumps(content))
    assert verify(data, quick=True) == ['manifest.json: its "files" are not as a converter writes them']


def test_quick_check_reads_few_files(data, monkeypatch):
    opened, inspect = [], verify_module._inspect
    monkeypatch.setattr(verify_module, '_inspect', lambda *a: opened.append(a[-1]) or inspect(*a))
    assert not verify(data, quick=True) and len(opened) == verify_module.SAMPLE
    assert {pair[0].split('/')[1] for pair in opened} == {'train', 'val', 'test'}


def test_command_line(data):
    def run(*arguments):
        done = subprocess.run([sys.executable, str(ROOT / 'tools/misc/verify_dataset.py'), str(data), *arguments],
                              capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    assert run() == (0, '20 train, 4 val, 4 test pairs; no problems\n', '')
    (data / MASK).unlink()
    (data / 'manifest.json').unlink()
    assert run('--quick') == (1, f'{TRAIN}: no mask {MASK}\n19 train, 4 val, 4 test pairs; 1 problem\n',
                              'note: there is no manifest.json: contents cannot be compared with what was '
                              'converted\n')
    code, text, errors = run('--quick', '--near')
    assert (code, text) == (2, '') and errors.startswith('error: a quick check decodes no images')


def test_reports_of_a_folder(data, tmp_path, capsys):
    page, record, pictures = tmp_path / 'page.html', tmp_path / 'report.json', tmp_path / 'pictures'
    options = ['--html', str(page), '--json', str(record), '--pictures', str(pictures)]
    assert main(['data', 'verify', str(data), *options]) == 0
    assert capsys.readouterr().out.endswith('20 train, 4 val, 4 test pairs; no problems\n')
    report, = json.loads(record.read_text())
    assert report == {'title': str(data), 'counts': {'pairs': {'train': 20, 'val': 4, 'test': 4},
                                                     'masks without foreground': 0}, 'faults': []}
    assert 'data:image/png;base64,' in page.read_text()
    with Image.open(pictures / '0.png') as sheet:
        pixels = np.asarray(sheet.convert('RGB')).reshape(-1, 3)
    assert (pixels == colour(1)).all(1).sum() > 1000  # outlines and legend; the background has no colour
    assert not (pixels == colour(0)).all(1).any()
    remask(data / MASK, 7)
    (data / VAL).unlink()
    assert main(['data', 'verify', str(data), *options]) == 1
    report, = json.loads(record.read_text())
    assert [(fault['severity'], fault['count']) for fault in report['faults']] == [('refused', 1)] * 5
    assert any(MASK in place for fault in report['faults'] for place in fault['places'])
    samples = folder_report(data, check(data)).samples()
    assert samples[0].path == data / TRAIN and samples[0].caption.startswith('refused: ') and len(samples) == 12


def test_the_pictures_show_every_label(tmp_path):
    rng = np.random.default_rng(0)
    for kind in ('images', 'masks'):
        (tmp_path / kind / 'train').mkdir(parents=True)
    for number in range(30):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(tmp_path / f'images/train/{number}.png')
        Image.fromarray(np.full((8, 8), number == 17, np.uint8)).save(tmp_path / f'masks/train/{number}.png')
    found = folder_report(tmp_path, check(tmp_path))
    assert found.counts == {'pairs': {'train': 30}, 'masks without foreground': 29}
    assert tmp_path / 'images/train/17.png' in [sample.path for sample in found.samples()]
