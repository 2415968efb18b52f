"""``mmkcla train --smoke``: every stage once, for every kind of task, and nothing of it stays."""
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from exact import write_classifier, write_detection, write_segmentation
from stereo_data import pair_folder
from tiny import KCLA, error_of, write_coco, write_detector

from mmkcla.cli import main
from mmkcla.runtime import smoke
from mmkcla.runtime.run_time import sum_text, validations
from mmkcla.stereo.motorcycle import convert
from mmkcla.utils.durations import duration, parse_duration

CONFIGS = Path(__file__).parents[2] / 'configs' / 'demo'


def detector(folder):
    return write_detector(folder / 'detector.py', write_coco(folder / 'coco'), KCLA), (6, 4, '2 validations')


def detector_by_iterations(folder):
    return write_detection(folder), (6, 4, '2 validations')


def segmentor(folder):
    return write_segmentation(folder), (3, 9, '3 validations')


def classifier(folder):
    return write_classifier(folder), (6, 15, '3 validations')


def stereo(folder):
    pair_folder(folder / 'pairs')
    convert(folder / 'data' / 'motorcycle')
    return CONFIGS / 'psmnet_motorcycle.py', (1, 500, '5 validations')


def tree(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob('*')) if '__pycache__' not in str(path)}


@pytest.mark.parametrize('make', [detector, detector_by_iterations, segmentor, classifier, stereo])
def test_all_stages(tmp_path, monkeypatch, capsys, make):
    config, (images, iterations, count) = make(tmp_path)
    work_dirs = tmp_path / 'work_dirs' / config.stem
    work_dirs.mkdir(parents=True)
    (work_dirs / 'best_x.pth').touch()  # would be set aside by a training
    temporary = tmp_path.parent / f'{tmp_path.name}_temporary'
    temporary.mkdir()
    monkeypatch.setattr(tempfile, 'tempdir', str(temporary))
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    assert main(['train', str(config), '--smoke']) == 0
    assert tree(tmp_path) == before and not list(temporary.iterdir())
    out = capsys.readouterr().out
    used = min(images, 4)
    cut = (f'is cut to {used} of {images} images: its metrics mean nothing' if used < images
           else f'has {images} image{"s" * (images > 1)}')
    assert f'smoke run in a temporary folder; the validation set {cut}\n' in out
    assert re.search(r'^ok      2 iterations: [\d.]+ s, [\d.]+ s; loss [\d.]+, [\d.]+$', out, re.MULTILINE)
    assert re.search(rf'^ok      validation of {used} images?: ', out, re.MULTILINE)
    assert re.search(r'^ok      checkpoint of iteration 2: \d+\.\d MiB$', out, re.MULTILINE)
    assert re.search(r'^ok      resumed from it, 1 more iteration; loss [\d.]+$', out, re.MULTILINE)
    assert re.search(r'^ok      prediction: (\S+\.\w+ as by mmkcla infer, \d+ results?'
                     r'|\d images? of the validation set)$', out, re.MULTILINE)
    assert re.search(r'^peak memory: [\d,]+ MiB of the process$', out, re.MULTILINE)
    assert re.search(rf'^the whole training: about .* \({iterations} iterations × [\d.]+ s \+ {count} × [\d.]+ s; '
                     'without the computation of metrics\\)$', out, re.MULTILINE)


def test_a_stage_that_fails(tmp_path, monkeypatch, capsys):
    config, _ = segmentor(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = ['train', str(config), '--smoke', '--cfg-options']
    assert main([*run, 'model.decode_head.in_channels=12']) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == 'failed  2 iterations'
    assert shown.err.splitlines()[-1].startswith('error: config: the parts of the model do not fit each other: ')
    assert main([*run, 'default_hooks.checkpoint.save_best=gone']) == 2  # found before the stages
    assert main([*run, 'test_dataloader=None', 'default_hooks.checkpoint=None', 'train_cfg.max_iters=1',
                 'param_scheduler=[]']) == 0
    out = capsys.readouterr().out
    assert 'ok      1 iteration: ' in out and 'no checkpoint: default_hooks.checkpoint is off' in out
    assert '(1 iteration × ' in out and '1 image of the validation set' in out


def test_without_validation(tmp_path, monkeypatch, capsys):
    config, _ = classifier(tmp_path)
    config.write_text(config.read_text() + 'del val_dataloader, val_evaluator, val_cfg\n'
                      'default_hooks["checkpoint"].pop("save_best")\n')
    monkeypatch.chdir(tmp_path)
    assert main(['train', str(config), '--smoke']) == 0
    out = capsys.readouterr().out
    assert '; no validation set\n' in out and 'no validation: the config has none' in out
    assert 'prediction: none: the config has no validation set' in out and '(15 iterations × ' in out


def test_options(tmp_path, capsys):
    config, _ = segmentor(tmp_path)
    message = error_of(capsys, 'train', config, '--smoke', '--resume')
    assert message.startswith('--smoke and --resume cannot be combined')


def test_outputs_stay_in_the_folder(tmp_path):
    part = [dict(type='A', out_dir='/user/a', inner=dict(outfile_prefix='p/q', save_dir=None, other='/user/a'))]
    smoke._redirect(part, tmp_path)
    assert part == [dict(type='A', out_dir=f'{tmp_path}/outputs/a',
                         inner=dict(outfile_prefix=f'{tmp_path}/outputs/q', save_dir=None, other='/user/a'))]


def test_validations_of_a_run():
    def loop(last, interval, begin=1, **more):
        runner = SimpleNamespace(_val_loop=object())
        return SimpleNamespace(max_epochs=last, val_interval=interval, val_begin=begin, runner=runner, **more)

    assert [validations(loop(*each)) for each in ((12, 1), (12, 5), (12, 20), (12, 1, 10))] == [12, 3, 1, 3]
    assert validations(loop(12, 5), begin=10) == 1
    dynamic = loop(10, 5, dynamic_milestones=[0, 8], dynamic_intervals=[5, 1])
    assert validations(dynamic) == 5 and dynamic.val_interval == 5  # after 5, 7, 8, 9, 10, as in mmengine
    assert sum_text(1, 0.25, 2, 90) == '1 iteration × 0.25 s + 2 validations × 1 min 30 s'
    assert sum_text(9, 12, 0, None) == '9 iterations × 12 s'


def test_durations():
    assert [duration(seconds) for seconds in (0.0123, 9.96, 59.4, 89.6, 3599, 7500, 86399, 90000)] == [
        '0.012 s', '10 s', '59 s', '1 min 30 s', '1 h', '2 h 5 min', '1 d', '1 d 1 h']
    assert [parse_duration(text) for text in ('2h', '90m', '1h30m', '1.5h', '45s', ' 1H ')] == [
        7200, 5400, 5400, 5400, 45, 3600]
    for text in ('', '2', '0h', 'h', '-1h', '1m2h', '2 hours', 'nan'):
        with pytest.raises(ValueError, match='must be a duration such as 2h, 90m, 1h30m or 45s, got'):
            parse_duration(text)
