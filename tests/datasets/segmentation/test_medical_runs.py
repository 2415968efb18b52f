"""Converters of medical data sets: splits, killed and repeated runs, what is overwritten and what is not."""
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('skimage')

from medical_files import DISC, IMAGES, MASKS, encode, hashes, isic, manifest, picture

from mmkcla.cli.data_report import summary
from mmkcla.datasets.segmentation import samples
from mmkcla.datasets.segmentation.converters import splits
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.converters.kvasir import convert_kvasir_seg
from mmkcla.datasets.segmentation.converters.workspace import Workspace
from mmkcla.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / 'tools'


def pairs(folder: Path, names, part: int = 0) -> Path:
    """A part of ISIC 2017 with a different picture for each name."""
    start = sum(map(ord, ''.join(names)))
    return isic(folder, {name: picture(start + i) for i, name in enumerate(names)},
                dict.fromkeys(names, encode(DISC * 255)), part)


# --- splits


@pytest.mark.parametrize(('total', 'ratio', 'sizes'), [
    (1000, '7:3', (700, 300)), (2150, '7:3', (1500, 650)), (2694, '7:3', (1886, 808)), (1000, '900:100', (900, 100)),
    (1000, '8:1:1', (800, 100, 100)), (10, '7:3', (7, 3)), (2000, '7:3', (1400, 600)), (11, '8:1:1', (9, 1, 1)),
    (999, '900:100', (899, 100)), (5, '1:1', (3, 2))])
def test_split_sizes_and_draw(total, ratio, sizes):
    assert splits.split_sizes(total, splits.parse_ratio(ratio)) == sizes
    names = [f'n{i}' for i in range(total)]
    drawn = splits.draw_split(names, splits.parse_ratio(ratio), 0)
    assert drawn.keys() == set(names)  # each name is in one split: it is a dict
    counts = Counter(drawn.values())
    assert counts == dict(zip(('train', 'test') if len(sizes) == 2 else splits.SPLITS, sizes, strict=True))
    assert drawn == splits.draw_split(names[::-1], splits.parse_ratio(ratio), 0)
    if total > 100:
        other = splits.draw_split(names, splits.parse_ratio(ratio), 1)
        assert Counter(other.values()) == counts and sum(other[name] != drawn[name] for name in names) > total / 10


def test_draw_is_pinned():
    drawn = splits.draw_split('abcdefghij', (8, 1, 1), 0)
    assert [next(name for name in drawn if drawn[name] == split) for split in ('val', 'test')] == ['b', 'e']
    # a name that is gone moves no other but those at the borders
    whole, fewer = (splits.draw_split([f'n{i}' for i in range(n)], (7, 3), 0) for n in (1000, 999))
    assert sum(whole[name] != split for name, split in fewer.items()) <= 1


@pytest.mark.parametrize('text', ['7', '7:3:1:1', '7:0', 'a:b', '-7:3', '7.5:2.5', ''])
def test_ratios_that_are_refused(text):
    with pytest.raises(UserError, match=r'must be like 7:3 \(train and test\) or 8:1:1'):
        splits.parse_ratio(text)
    for total, images in ((2, '2 images'), (1, '1 image')):
        with pytest.raises(UserError, match=f'^{images} cannot be split 8:1:1: a part would be empty'):
            splits.split_sizes(total, (8, 1, 1))


def test_split_files(tmp_path):
    expected = {'a': 'train', 'b c': 'train', 'd.e': 'val', 'f': 'test'}
    (tmp_path / 'lines').write_text('# names\ntrain\ta\n\ntrain b c.JPG\nval   d.e.png\ntest sub/f\n')
    (tmp_path / 'lists.json').write_text(json.dumps({'train': ['a', 'b c'], 'val': ['d.e'], 'test': ['f.jpg']}))
    (tmp_path / 'folder').mkdir()
    for split in splits.SPLITS:
        text = '\n'.join(name for name in expected if expected[name] == split)
        (tmp_path / 'folder' / f'{split}.txt').write_text(text)
    for name in ('lines', 'lists.json', 'folder'):
        assert splits.read_split_file(tmp_path / name) == expected


@pytest.mark.parametrize(('text', 'message'), [
    ('train a\nvalid b\n', r"list, line 2: unknown split 'valid'; there are train, val, test"),
    ('train a\ntest b\nval a.jpg\n', r'list, line 3: a is there twice \(before: \S+list, line 1\)'),
    ('train\n', r"list, line 1: 'train' is not a split and a name"), ('test a\n', r'list names no image for train'),
    ('', r'list names no image for train')])
def test_split_files_that_are_refused(tmp_path, text, message):
    (tmp_path / 'list').write_text(text)
    with pytest.raises(UserError, match=message):
        splits.read_split_file(tmp_path / 'list')


def test_split_json_that_is_refused(tmp_path):
    twin = '{"train": ["a"], "test": ["b"], "train": ["c"]}'
    for text, message in (('{"train": "a"}', 'must be {"train": '), ('{', 'cannot read'), ('[]', 'must be {"train"'),
                          (twin, r's\.json: "train" is there twice; put its names into one list$')):
        (tmp_path / 's.json').write_text(text)
        with pytest.raises(UserError, match=message):
            splits.read_split_file(tmp_path / 's.json')
    with pytest.raises(UserError, match='cannot read .*none: No such file'):
        splits.read_split_file(tmp_path / 'none')


def test_legacy_split_of_isic(tmp_path):
    raw = pairs(tmp_path / 'raw', 'abcdefgh')
    pairs(pairs(raw, 'ij', part=1), 'xyz', part=2)
    outcome = convert_isic2017(raw, tmp_path / 'out', split='7:3', seed=3)
    assert outcome.text.endswith(': 7 train, 3 test images with masks (7:3 drawn by seed 3)') and not outcome.problems
    content = manifest(tmp_path / 'out')
    assert content['seed'] == 3 and content['counts'] == {'train': 7, 'val': 0, 'test': 3} and content['notes'] == [
        'the official test set is not used: the split is drawn from train and val',
        'there is no val: a ratio of two parts is train and test']
    assert {entry['name'] for entry in content['files']} == set('abcdefghij')
    assert content['names_sha256']['test'] == splits.names_digest(
        entry['name'] for entry in content['files'] if entry['split'] == 'test')


def test_split_file_in_a_conversion(tmp_path):
    raw = pairs(tmp_path / 'raw', 'abcd')
    (tmp_path / 'list').write_text('train a\ntest b\nval gone\n')
    outcome = convert_isic2017(raw, tmp_path / 'out', split_file=tmp_path / 'list')
    assert outcome.text.endswith(': 1 train, 1 test images with masks (split file list)')
    assert [str(problem) for problem in outcome.problems] == ['in the split file, not in the data: gone (val)']
    assert outcome.notes == ('2 images are left out: the split file does not name them',)
    assert summary(outcome.problems) == ['1 problem (1 not in the data; all in problems.txt):',
                                         '  in the split file, not in the data (1): gone (val)']
    (tmp_path / 'list').write_text('train a\ntest b\nval c\n')
    (tmp_path / 'raw' / MASKS / 'd_segmentation.png').unlink()
    (tmp_path / 'raw' / IMAGES / 'e.jpg').write_bytes(picture(9))
    (tmp_path / 'raw' / MASKS / 'e_segmentation.png').write_bytes(encode(DISC * 255))
    outcome = convert_isic2017(raw, tmp_path / 'other', split_file=tmp_path / 'list')
    assert outcome.notes == ('1 image is left out: the split file does not name it',)
    with pytest.raises(UserError, match='split 7:3 and split file .*list: give one of them'):
        convert_isic2017(raw, tmp_path / 'out', split='7:3', split_file=tmp_path / 'list')
    with pytest.raises(UserError, match='Kvasir-SEG has no official split; give a ratio like 8:1:1, or a split file'):
        convert_kvasir_seg(raw, tmp_path / 'out', split='official')
    with pytest.raises(UserError, match='seed -1: must be 0 or more'):
        convert_isic2017(raw, tmp_path / 'out', seed=-1)
    with pytest.raises(UserError, match='workers 0: must be 1 or more'):
        convert_isic2017(raw, tmp_path / 'out', workers=0)


# --- killed and repeated runs

SLOW = '''
import sys, time
from mmkcla.datasets.segmentation.converters import writing
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
work = writing._convert_pair
def slow(*arguments):
    time.sleep(0.04)
    return work(*arguments)
writing._convert_pair = slow
convert_isic2017(sys.argv[1], sys.argv[2], workers=2)
'''


def test_killed_runs_end_in_the_same_bytes(tmp_path):
    raw, out, journal = tmp_path / 'raw', tmp_path / 'out', tmp_path / 'out.partial' / 'journal.jsonl'
    samples.make_samples(raw, count=(40, 5, 5))
    convert_isic2017(raw, tmp_path / 'whole')
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    for lines in (4, 15, 30):  # three kills in a row, each further on
        run = subprocess.Popen([sys.executable, '-c', SLOW, str(raw), str(out)], env=environment)
        end = time.monotonic() + 60
        while not journal.exists() or journal.read_bytes().count(b'\n') < lines:
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        run.kill()
        assert run.wait() == -9 and not out.exists()
    done = [json.loads(line) for line in journal.read_bytes().splitlines()[1:] if line.endswith(b'}')]
    assert 29 <= len({entry['name'] for entry in done}) < 50
    # the journal is not taken at its word: a file that is gone, cut, or changed at equal size is made again
    data = tmp_path / 'out.partial' / 'data'
    (data / done[0]['image']).unlink()
    (data / done[1]['mask']).write_bytes((data / done[1]['mask']).read_bytes()[:-1])
    changed = bytearray((data / done[2]['image']).read_bytes())
    changed[len(changed) // 2] ^= 1
    (data / done[2]['image']).write_bytes(changed)
    with journal.open('ab') as file:
        file.write(b'{"name": "half a li')
    outcome = convert_isic2017(raw, out)
    assert outcome.reused == len({entry['name'] for entry in done}) - 3
    assert hashes(out) == hashes(tmp_path / 'whole') and sorted(os.listdir(tmp_path)) == ['out', 'raw', 'whole']


def test_killed_run_of_other_arguments_is_begun_anew(tmp_path):
    raw, out = pairs(tmp_path / 'raw', 'abcdef'), tmp_path / 'out'
    with Workspace(out, {'converter': 'mmkcla isic2017 1', 'split': 'official'}) as work:
        (work.data / 'images').mkdir()
        (work.data / 'images' / 'old').touch()
    outcome = convert_isic2017(raw, out, split='2:1')
    assert f'{out}.partial was started with other arguments or files; starting again' in outcome.notes
    convert_isic2017(raw, tmp_path / 'whole', split='2:1')
    assert hashes(out) == hashes(tmp_path / 'whole') and not (tmp_path / 'out.partial').exists()


def test_run_killed_around_the_last_step(tmp_path):
    raw, out = pairs(tmp_path / 'raw', 'abc'), tmp_path / 'out'
    convert_isic2017(raw, out)
    (tmp_path / 'out.partial').mkdir()
    (tmp_path / 'out.partial' / 'journal.jsonl').write_text('{}\n')  # the rename was done, the tidying not
    assert convert_isic2017(raw, out).text == f'{out}: already there'
    assert sorted(os.listdir(tmp_path)) == ['out', 'raw']


def test_foreign_partial_folder_and_a_second_run(tmp_path):
    raw, out, partial = pairs(tmp_path / 'raw', 'abc'), tmp_path / 'out', tmp_path / 'out.partial'
    partial.mkdir()
    (partial / 'mine').touch()
    with pytest.raises(UserError, match=r'out.partial/mine is not of a converter; move it'):
        convert_isic2017(raw, out)
    (partial / 'mine').unlink()
    with Workspace(out, {}), pytest.raises(UserError, match=r'another run is writing \S+out; wait until it is done'):
        convert_isic2017(raw, out)
    (partial / 'journal.jsonl').unlink()
    with pytest.raises(UserError, match=r'out.partial has no readable journal; delete it to start again'):
        convert_isic2017(raw, out)


def test_second_run_other_arguments_and_overwrite(tmp_path):
    raw, out = pairs(tmp_path / 'raw', 'abcdefghij'), tmp_path / 'out'
    convert_isic2017(raw, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    assert convert_isic2017(raw, out).text == f'{out}: already there'
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before
    with pytest.raises(UserError, match=r'was written with split official \(requested: 7:3\), seed None \('):
        convert_isic2017(raw, out, split='7:3')
    (out / 'images' / 'train' / 'mine.jpg').touch()
    with pytest.raises(UserError, match='mine.jpg is not part of the prepared data set and would be lost; move it'):
        convert_isic2017(raw, out, split='7:3', overwrite=True)
    (out / 'images' / 'train' / 'mine.jpg').unlink()
    convert_isic2017(raw, out, split='7:3', overwrite=True)
    assert manifest(out)['counts'] == {'train': 7, 'val': 0, 'test': 3}
    assert sorted(os.listdir(tmp_path)) == ['out', 'raw']
    (raw / 'ISIC-2017_Training_Data' / 'a.jpg').write_bytes(picture(1234, (12, 10), quality=30))
    with pytest.raises(UserError, match=r'out was written with other files in the source; choose another folder'):
        convert_isic2017(raw, out, split='7:3')


def test_damaged_and_foreign_outputs(tmp_path):
    raw, out = pairs(tmp_path / 'raw', 'abc'), tmp_path / 'out'
    convert_isic2017(raw, out)
    before = hashes(out)
    (out / 'masks' / 'train' / 'b.png').unlink()
    with pytest.raises(UserError, match=r'out is damaged: masks/train/b.png is missing; write it again with --'):
        convert_isic2017(raw, out)
    convert_isic2017(raw, out, overwrite=True)
    assert hashes(out) == before
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / 'x').touch()
    with pytest.raises(UserError, match=r'other is neither empty nor a prepared data set; choose another folder'):
        convert_isic2017(raw, tmp_path / 'other', overwrite=True)
    with pytest.raises(UserError, match=r'x is a file; the prepared data set needs a folder'):
        convert_isic2017(raw, tmp_path / 'other' / 'x')
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to(tmp_path / 'real')
    convert_isic2017(raw, tmp_path / 'link')
    assert (tmp_path / 'link').is_symlink() and hashes(tmp_path / 'real') == before


def test_full_disk_is_one_line_and_the_work_is_kept(tmp_path, monkeypatch):
    raw, out, write = pairs(tmp_path / 'raw', 'abcdefgh'), tmp_path / 'out', Path.write_bytes

    def full(self, data):
        if self.stem == 'e':
            raise OSError(28, 'No space left on device')
        return write(self, data)

    monkeypatch.setattr(Path, 'write_bytes', full)
    with pytest.raises(UserError, match=r'^cannot write \S+out: No space left on device$'):
        convert_isic2017(raw, out, workers=1)
    monkeypatch.undo()
    assert not out.exists() and convert_isic2017(raw, out).reused in range(4, 8)


def test_nothing_to_train_on(tmp_path):
    raw = isic(tmp_path / 'raw', {'a': b'', 'b': picture()}, {'a': encode(DISC), 'b': encode(np.zeros((3, 3)))})
    with pytest.raises(UserError, match=r'raw: no pair is left for training \(8 problems|6 problems: corrupt image'):
        convert_isic2017(raw, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_command_lines(tmp_path):
    def run(tool, *arguments):
        done = subprocess.run([sys.executable, str(TOOLS / tool), *arguments], capture_output=True, text=True,
                              cwd=tmp_path, env={**os.environ, 'PYTHONPATH': str(ROOT)})
        return done.returncode, done.stdout, done.stderr

    code, text, errors = run('dataset_converters/make_samples.py', '--dataset', 'kvasir_seg', '--out', 'raw', '--count',
                             '8', '1', '1', '--photograph', 'ihc')
    assert (code, text, errors) == (0, 'raw: 8 train, 1 val, 1 test images in kvasir-seg.zip; the names of its '
                                      'splits for --split-file: raw/kvasir_split.json\n', '')
    code, text, errors = run('dataset_converters/kvasir_seg.py', 'raw', '--split', '7:3', '--seed', '1')
    assert (code, text) == (0, 'data/kvasir_seg: 7 train, 3 test images with masks (7:3 drawn by seed 1)\n')
    assert errors == 'note: there is no val: a ratio of two parts is train and test\n'
    assert run('misc/verify_dataset.py', 'data/kvasir_seg') == (0, '7 train, 3 test pairs; no problems\n', '')
    for tool, arguments, message in (
            ('dataset_converters/isic2017.py', ['raw'], 'error: no ISIC-2017_Training_Data.zip and no ISIC-2017_'),
            ('dataset_converters/isic2018.py', ['none'], 'error: no folder or zip file none; it is where'),
            ('dataset_converters/kvasir_seg.py', ['raw', '--split', '9'], "error: split '9': must be like 7:3"),
            ('misc/verify_dataset.py', ['none'], 'error: no folder none; create it with mmkcla data')):
        code, text, errors = run(tool, *arguments)
        assert (code, text) == (2, '') and errors.startswith(message) and errors.count('\n') == 1


def test_number_of_threads_changes_no_byte(tmp_path, capsys):
    raw = pairs(tmp_path / 'raw', 'abcdefghijkl')
    for workers in (1, 2, 7):
        convert_isic2017(raw, tmp_path / f'out{workers}', workers=workers, progress=workers == 7)
    assert hashes(tmp_path / 'out1') == hashes(tmp_path / 'out2') == hashes(tmp_path / 'out7')
    assert capsys.readouterr().err.count('ISIC 2017:   0%') == 1 and not list(tmp_path.glob('*.partial'))
