"""Checkpoints that are whole or absent, and the curves of a training."""
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import NonFiniteError
from mmkcla.runtime.hooks import AtomicCheckpointHook, CurvesHook
from mmkcla.runtime.hooks.curves import draw_curves, main_metrics, read_table, write_table


class Line(BaseModel):
    """y = ax, with two losses."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(1, 1, bias=False)

    def forward(self, inputs: torch.Tensor, mode: str = 'tensor') -> Any:
        error = (self.a(inputs) - 2 * inputs).square().mean()
        if mode == 'loss':
            return dict(loss_fit=error, loss_size=0.1 * self.a.weight.square().mean())
        return [error]


class Score(BaseMetric):
    """Negative error; the table also carries COCO's -1 for what cannot be measured."""

    default_prefix = 'toy'

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results += [float(sample) for sample in data_samples]

    def compute_metrics(self, results: list[float]) -> dict[str, float]:
        return dict(score=1 / (1 + sum(results)), large=-1)


def _collate(samples: list) -> dict:
    return dict(inputs=torch.stack(list(samples)))


def _loader() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.linspace(0, 1, 12)[:, None], batch_size=2, collate_fn=_collate)


def _run(work_dir: Path, name: str, *, epochs: int = 0, iters: int = 0, resume: str | None = None,
         checkpoint: dict | None = None, hooks: list | None = None) -> Runner:
    by_epoch = epochs > 0
    runner = Runner(
        Line(), work_dir=str(work_dir), train_dataloader=_loader(), val_dataloader=_loader(),
        train_cfg=dict(by_epoch=True, max_epochs=epochs) if by_epoch else dict(by_epoch=False, max_iters=iters,
                                                                              val_interval=4),
        val_cfg=dict(), val_evaluator=Evaluator(Score()), optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        default_hooks=dict(checkpoint=dict(type='mmkcla.AtomicCheckpointHook', by_epoch=by_epoch,
                                           interval=1 if by_epoch else 4, **(checkpoint or {}))),
        custom_hooks=[CurvesHook(interval=3), *(hooks or [])], resume=resume is not None, load_from=resume,
        log_level='ERROR', experiment_name=name, cfg=Config(dict(name=name)))
    runner.train()
    return runner


def test_registered() -> None:
    assert HOOKS.get('mmkcla.CurvesHook') is CurvesHook
    assert HOOKS.get('mmkcla.AtomicCheckpointHook') is AtomicCheckpointHook


def test_curves_of_epochs_and_of_a_resumed_training(tmp_path) -> None:
    _run(tmp_path, 'curves_a', epochs=2)
    rows = read_table(tmp_path / 'curves.csv')
    assert [row['iter'] for row in rows] == [3, 6, 9, 12] and [row['epoch'] for row in rows] == [1, 1, 2, 2]
    assert all({'train/lr', 'train/loss', 'train/loss_fit', 'train/loss_size'} <= row.keys() for row in rows)
    assert rows[0]['train/loss'] == pytest.approx(rows[0]['train/loss_fit'] + rows[0]['train/loss_size'], rel=1e-5)
    assert ['val/toy/score' in row for row in rows] == [False, True, False, True]
    assert (tmp_path / 'curves.png').read_bytes().startswith(b'\x89PNG')

    _run(tmp_path, 'curves_b', epochs=4, resume=str(tmp_path / 'epoch_1.pth'))
    again = read_table(tmp_path / 'curves.csv')
    assert [row['iter'] for row in again] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert again[:2] == rows[:2]  # the part before the resumed checkpoint, its validation too

    _run(tmp_path, 'curves_c', epochs=1)  # a new training in the same folder starts anew
    assert [row['iter'] for row in read_table(tmp_path / 'curves.csv')] == [3, 6]


def test_curves_of_iterations(tmp_path) -> None:
    _run(tmp_path, 'curves_iter', iters=10)
    rows = read_table(tmp_path / 'curves.csv')
    assert [row['iter'] for row in rows if 'train/loss' in row] == [3, 6, 9, 10]
    assert [row['iter'] for row in rows if 'val/toy/score' in row] == [4, 8, 10]


def test_table_is_written_before_a_checkpoint(tmp_path) -> None:
    class Last(Hook):
        priority = 'LOWEST'

        def after_train_epoch(self, runner: Any) -> None:  # after the checkpoint's, before the validation
            self.rows = read_table(tmp_path / 'curves.csv')
            self.saved = (tmp_path / 'epoch_1.pth').exists()

    last = Last()
    _run(tmp_path, 'curves_before', epochs=1, hooks=[last])
    assert last.saved and [row['iter'] for row in last.rows] == [3, 6]


def test_mean_over_the_interval(tmp_path) -> None:
    seen = []

    class Watch(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            seen.append(outputs['loss'].item())

    _run(tmp_path, 'curves_mean', epochs=1, hooks=[Watch()])
    rows = read_table(tmp_path / 'curves.csv')
    assert [row['train/loss'] for row in rows] == pytest.approx([sum(seen[:3]) / 3, sum(seen[3:]) / 3], rel=1e-5)


def test_table_survives_odd_files(tmp_path) -> None:
    assert read_table(tmp_path / 'none.csv') == []
    (tmp_path / 'other.csv').write_text('a,b\n1,x\n')
    assert read_table(tmp_path / 'other.csv') == []
    rows = [dict(epoch=1, iter=5, **{'train/loss': float('nan')}), {'epoch': 1, 'iter': 6, 'val/a': 0.25}]
    write_table(tmp_path / 'a.csv', rows)
    assert (tmp_path / 'a.csv').read_text() == 'epoch,iter,train/loss,val/a\n1,5,nan,\n1,6,,0.25\n'
    assert read_table(tmp_path / 'a.csv')[1] == rows[1]
    draw_curves(tmp_path / 'a.png', rows, 'title')  # NaN and a single point do not stop it
    draw_curves(tmp_path / 'b.png', [dict(epoch=1, iter=1)], 'nothing to draw')
    assert (tmp_path / 'a.png').exists() and not (tmp_path / 'b.png').exists()


def test_what_a_picture_has_room_for() -> None:
    scores = ('IoU', 'DSC', 'mIoU', 'mDice', 'Acc')
    medical = [f'val/{score}_{kind}' for kind in ('pooled', 'mean') for score in scores]
    medical += ['val/DSC_mean_lo', 'val/DSC_mean_hi', 'val/failed_share', 'val/empty_truth']
    assert main_metrics(medical, ['failed_share', 'DSC_mean', 'gone']) == [
        'val/failed_share', 'val/DSC_mean', 'val/IoU_pooled', 'val/DSC_pooled', 'val/mIoU_pooled', 'val/IoU_mean']
    coco = [f'val/coco/{kind}_mAP{end}' for kind in ('bbox', 'segm') for end in ('', '_50', '_75', '_s', '_m', '_l')]
    assert main_metrics(coco) == [name for name in coco if not name.endswith(('_s', '_m', '_l'))]
    assert main_metrics(['val/accuracy/top1', 'val/accuracy/top5']) == ['val/accuracy/top1', 'val/accuracy/top5']
    assert main_metrics([f'val/EPE{number}' for number in range(9)]) == [f'val/EPE{number}' for number in range(6)]
    assert main_metrics([]) == []


def test_the_picture_of_many_metrics(tmp_path, monkeypatch) -> None:
    """The six curves in six colours, the axis around them, and plain numbers beside a rate that hardly moves."""
    from matplotlib.figure import Figure
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, 'savefig', lambda self, *args, **kwargs: figures.append(self) or save(
        self, *args, **kwargs))
    names = [f'{score}_{kind}' for kind in ('pooled', 'mean') for score in ('IoU', 'DSC', 'mIoU', 'Sens')]
    rows = [{'epoch': 1, 'iter': number, 'train/loss': 1 / number, 'train/lr': 1e-3 - number * 1e-9,
             'val/failed_share': 0., 'val/large': -1, **{f'val/{name}': .8 + number / 100 for name in names}}
            for number in range(1, 9)]
    draw_curves(tmp_path / 'a.png', rows, 'title', ['DSC_pooled'])
    loss, rate, validation = figures[0].axes
    assert [line.get_label() for line in validation.lines] == [
        'DSC_pooled', 'IoU_pooled', 'mIoU_pooled', 'IoU_mean', 'DSC_mean', 'mIoU_mean']
    assert len({line.get_color() for line in validation.lines}) == 6
    assert .79 < validation.get_ylim()[0] < .82 and .87 < validation.get_ylim()[1] < .9
    figures[0].canvas.draw()
    assert [axis.yaxis.get_major_formatter().get_offset() for axis in (loss, validation)] == ['', '']
    assert rate.yaxis.get_major_formatter().offset == 0 and rate.get_ylim()[0] == 0
    assert rate.get_ylim()[1] == pytest.approx(1.1e-3, rel=1e-3)


def test_a_loss_that_is_not_finite_is_warned_of_once(tmp_path, caplog) -> None:
    class Diverge(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            if runner.iter == 4:
                runner.model.a.weight.data.fill_(float('nan'))

        def before_train(self, runner: Any) -> None:
            runner.logger.addHandler(caplog.handler)
            runner.logger.setLevel('WARNING')

    with pytest.raises(NonFiniteError, match='iteration 6: no checkpoint written, since .* values in a.weight; there '
                       'is no earlier checkpoint'):
        _run(tmp_path, 'diverge', epochs=2, hooks=[Diverge()])
    assert not list(tmp_path.glob('*.pth'))
    assert [record.getMessage() for record in caplog.records if 'The loss is' in record.getMessage()] == [
        'The loss is nan at iteration 6: the training has diverged. Lower the learning rate, or clip gradients '
        '(optim_wrapper.clip_grad).']


def test_interval_must_be_positive() -> None:
    with pytest.raises(ValueError, match='at least 1, got 0'):
        CurvesHook(interval=0)


def test_names_and_kept_checkpoints_are_mmengines(tmp_path) -> None:
    _run(tmp_path, 'kept', epochs=3, checkpoint=dict(max_keep_ckpts=1, save_best='toy/score', rule='greater'))
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['best_toy_score_epoch_3.pth', 'epoch_3.pth']
    assert (tmp_path / 'last_checkpoint').read_text() == str(tmp_path / 'epoch_3.pth')
    assert not list(tmp_path.glob('.*'))
    state = read_checkpoint(tmp_path / 'epoch_3.pth')
    assert state['meta']['epoch'] == 3 and state['state_dict']['a.weight'].shape == (1, 1)


def test_the_old_checkpoint_stays_if_the_new_one_fails(tmp_path, monkeypatch) -> None:
    replace = os.replace

    def full_disk(source: str, target: Any) -> None:
        if str(target).endswith('_2.pth'):
            raise OSError(28, 'No space left on device', str(target))
        replace(source, target)

    monkeypatch.setattr(os, 'replace', full_disk)
    with pytest.raises(OSError, match='No space left'):
        _run(tmp_path, 'full', epochs=3, checkpoint=dict(max_keep_ckpts=1, save_best='toy/score', rule='greater'))
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['best_toy_score_epoch_1.pth', 'epoch_1.pth']
    read_checkpoint(tmp_path / 'epoch_1.pth')
    assert not list(tmp_path.glob('.*.part'))


def test_parts_of_a_killed_run_are_removed(tmp_path) -> None:
    part = tmp_path / '.epoch_7.pth.abcd.part'
    part.write_bytes(b'half')
    _run(tmp_path, 'parts', epochs=1)
    assert not part.exists()


def test_a_resumed_copy_leaves_the_files_of_the_original(tmp_path) -> None:
    original, copied = tmp_path / 'a', tmp_path / 'b'
    options = dict(max_keep_ckpts=1, save_best='toy/score', rule='greater')
    _run(original, 'original', epochs=2, checkpoint=options)
    before = {path.name: path.read_bytes() for path in original.glob('*.pth')}
    assert sorted(before) == ['best_toy_score_epoch_2.pth', 'epoch_2.pth']
    shutil.copytree(original, copied)
    _run(copied, 'copied', epochs=3, checkpoint=options, resume=str(copied / 'epoch_2.pth'))
    assert {path.name: path.read_bytes() for path in original.glob('*.pth')} == before
    assert sorted(path.name for path in copied.glob('*.pth')) == ['best_toy_score_epoch_3.pth', 'epoch_3.pth']
    info = read_checkpoint(copied / 'epoch_3.pth')['message_hub']['runtime_info']
    assert info['best_ckpt'] == str(copied / 'best_toy_score_epoch_3.pth')


def test_a_checkpoint_names_a_file_that_it_did_not_make(tmp_path) -> None:
    options = dict(save_best='toy/score', rule='greater')
    _run(tmp_path, 'names_a', epochs=1, checkpoint=options)
    (tmp_path / 'notes.txt').write_text('mine')
    state = read_checkpoint(tmp_path / 'epoch_1.pth')
    state['message_hub']['runtime_info']['best_ckpt'] = str(tmp_path / 'notes.txt')
    torch.save(state, tmp_path / 'epoch_1.pth')
    _run(tmp_path, 'names_b', epochs=2, checkpoint=options, resume=str(tmp_path / 'epoch_1.pth'))
    assert (tmp_path / 'notes.txt').read_text() == 'mine'
    assert (tmp_path / 'best_toy_score_epoch_2.pth').exists()


def test_checkpoint_hook_has_a_backend_before_a_training(tmp_path) -> None:
    """A validation alone calls it, too."""
    from mmkcla.runtime.hooks.checkpoint import AtomicCheckpointHook
    assert AtomicCheckpointHook(save_best='acc').file_backend.join_path(str(tmp_path), 'a') == str(tmp_path / 'a')
