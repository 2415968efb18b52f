"""NaN and infinite values: found before the step, with the files of the batch; stopped or skipped, never saved."""
import copy
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn

from mmkcla.checkpoint import read_checkpoint
from mmkcla.errors import NonFiniteError, UserError
from mmkcla.runtime.batch_files import clean_inputs, files_of
from mmkcla.runtime.hooks import NonFiniteHook


class Net(BaseModel):
    """One linear layer behind a batch norm, on batches of four numbers."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(1), nn.Linear(1, 1)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        inputs = inputs if isinstance(inputs, torch.Tensor) else torch.stack(inputs)
        factor = torch.tensor([getattr(sample, 'factor', 1.) for sample in data_samples])
        return dict(loss=(self.fc(self.norm(inputs))[:, 0] * factor).square().mean(), acc=inputs.mean())


def batches(bad=(), value=float('nan'), count=6, pixel=False):
    """``count`` batches of four; in those of ``bad`` the loss (or one pixel) is ``value``."""
    found = []
    for number in range(count):
        inputs = torch.linspace(0, 1, 4)[:, None] + number
        samples = [BaseDataElement(metainfo=dict(img_path=f'b{number}_{index}.png', factor=1.)) for index in range(4)]
        if number in bad and pixel:
            inputs[2] = value
        elif number in bad:
            samples[1].set_metainfo(dict(factor=value))
        found.append(dict(inputs=inputs, data_samples=samples))
    return found


def _only(items):
    return items[0]


def run(tmp_path, data, hook=None, optimizer=None, wrapper=None, lr=0.1, save=True, interval=1, resume=None, seed=0):
    torch.manual_seed(seed)
    runner = Runner(
        Net(), work_dir=str(tmp_path),
        train_dataloader=torch.utils.data.DataLoader(data, batch_size=1, collate_fn=_only),
        train_cfg=dict(by_epoch=False, max_iters=len(data)),
        optim_wrapper=dict(optimizer=optimizer or dict(type='SGD', lr=lr, momentum=0.9), **(wrapper or {})),
        default_hooks=dict(non_finite=dict(type='mmkcla.NonFiniteHook', **(hook or {})),
                           checkpoint=dict(type='mmkcla.AtomicCheckpointHook', by_epoch=False, interval=interval)
                           if save else None),
        log_level='ERROR', experiment_name=f'{tmp_path.name}{id(data)}', cfg=Config(dict(a=1)))
    runner.train()
    return runner


@pytest.mark.parametrize('pixel', [False, True])
@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_stop_names_the_files_and_keeps_the_last_checkpoint(tmp_path, value, pixel):
    with pytest.raises(NonFiniteError) as error:
        run(tmp_path, batches([3], value, pixel=pixel))
    what = ('the images have NaN or infinite pixels; images: b3_2.png; correct or remove them' if pixel else
            'the loss is NaN or infinite; images: b3_0.png, b3_1.png, b3_2.png, b3_3.png; lower the learning rate')
    assert str(error.value).startswith(f'iteration 4: {what}') and '\n' not in str(error.value)
    assert error.value.exit_code == 3
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['iter_1.pth', 'iter_2.pth', 'iter_3.pth']


@pytest.mark.parametrize('pixel', [False, True])
@pytest.mark.parametrize('optimizer', [
    dict(type='SGD', lr=.1, momentum=.9), dict(type='Adam', lr=.1), dict(type='AdamW', lr=.1),
    dict(type='RMSprop', lr=.1), dict(type='Adagrad', lr=.1), dict(type='AdamW', lr=.1, foreach=True),
    dict(type='SGD', lr=.1, foreach=True)], ids=lambda value: '-'.join(map(str, value.values())))
def test_skipped_iterations_change_nothing(tmp_path, optimizer, pixel):
    """Weights, buffers and the optimizer are those of a training without the bad batches."""
    bad = run(tmp_path / 'a', batches([0, 2, 5], pixel=pixel), dict(action='skip'), optimizer, save=False)
    good = run(tmp_path / 'b', [batch for number, batch in enumerate(batches()) if number in (1, 3, 4)],
               optimizer=optimizer, save=False)
    ours, theirs = bad.model.state_dict(), good.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    ours, theirs = (runner.optim_wrapper.state_dict()['state'] for runner in (bad, good))
    for number, state in theirs.items():
        assert all(torch.equal(torch.as_tensor(ours[number][key]), torch.as_tensor(state[key])) for key in state)
    assert bad.message_hub.get_info('non_finite_skipped') == 3


def test_the_budget_ends_the_training_and_is_saved(tmp_path):
    data = batches([1, 2, 4])
    with pytest.raises(NonFiniteError, match='^iteration 5: the loss is NaN or infinite, and the budget of 2 '
                       'iterations to skip is used up; images: b4_0.png'):
        run(tmp_path, data, dict(action='skip', budget=2))
    saved = read_checkpoint(tmp_path / 'iter_4.pth')['message_hub']['runtime_info']
    assert saved['non_finite_skipped'] == 2


def test_skipping_is_logged_and_counted(tmp_path, capsys):
    run(tmp_path, batches([1]), dict(action='skip'), save=False)
    assert 'note: 1 iteration with NaN or infinite values skipped' in capsys.readouterr().err


def test_accumulation_drops_what_was_accumulated(tmp_path):
    """Three iterations a step: a NaN in the second drops the first two, and the third is stepped alone."""
    bad = run(tmp_path / 'a', batches([1], count=3), dict(action='skip'), save=False,
              wrapper=dict(accumulative_counts=3), lr=0.3)
    alone = Net()
    torch.manual_seed(0)
    alone = Net()
    stats = batches(count=3)
    alone(**stats[0], mode='loss')
    before = copy.deepcopy(alone.state_dict())
    alone(**stats[2], mode='loss')['loss'].div(3).backward()
    expected = {name: before[name] - 0.3 * value.grad for name, value in alone.named_parameters()}
    assert all(torch.allclose(value, expected[name]) for name, value in bad.model.named_parameters())
    with pytest.raises(NonFiniteError, match='iteration 2: the loss'):
        run(tmp_path / 'b', batches([1], count=3), save=False, wrapper=dict(accumulative_counts=3))


def test_gradients_alone(tmp_path):
    """The square root at 0: a finite loss with an infinite gradient."""
    data = batches()
    for sample in data[2]['data_samples']:
        sample.set_metainfo(dict(factor=1e25))  # the square overflows in the gradient's product only
    with pytest.raises(NonFiniteError, match='iteration 3: the (loss|gradients)'):
        run(tmp_path, data, save=False)


def test_statistics_are_not_called_weights(tmp_path):
    """The mean over a batch of finite numbers overflows in the batch norm, and the loss is NaN."""
    data = batches()
    data[2]['inputs'] = data[2]['inputs'] * 1e38
    what = ('^iteration 3: the loss is NaN or infinite, as are the batch-norm statistics norm.running_mean, '
            'norm.running_var; the weights are still finite; images: b2_0.png')
    with pytest.raises(NonFiniteError, match=what):
        run(tmp_path, data, save=False)


def test_weights_made_infinite_by_a_step_are_not_saved(tmp_path):
    with pytest.raises(NonFiniteError, match='^iteration [12]: no checkpoint written, since there are NaN or infinite '
                       'values in .*(fc|norm|optimizer).*; lower the learning rate or clip the gradients'):
        data = batches()
        for sample in data[0]['data_samples']:
            sample.set_metainfo(dict(factor=30.))
        run(tmp_path, data, lr=3e38)
    assert [path.name for path in tmp_path.glob('*.pth')] in ([], ['iter_1.pth'])


@pytest.mark.parametrize('action', ['stop', 'skip'])
def test_a_diverging_rate_ends_with_finite_checkpoints(tmp_path, action):
    with pytest.raises(NonFiniteError, match='^iteration [2-6]: '):
        run(tmp_path, batches(count=6), dict(action=action, **(dict(budget=0) if action == 'skip' else {})), lr=1e20)
    for path in tmp_path.glob('*.pth'):
        assert all(value.isfinite().all() for value in read_checkpoint(path)['state_dict'].values())


def test_skips_of_the_loss_scaling_are_no_alarm(tmp_path):
    """A scaler that finds an overflow leaves out the step; torch has one for the CPU."""
    from mmengine.optim import OptimWrapper
    from mmengine.registry import OPTIM_WRAPPERS

    @OPTIM_WRAPPERS.register_module(force=True)
    class Scaled(OptimWrapper):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.scaler = torch.amp.GradScaler('cpu', init_scale=3e38)

        def backward(self, loss, **kwargs):
            self.scaler.scale(loss).backward(**kwargs)
            self._inner_count += 1

        def step(self, **kwargs):
            self.scaler.step(self.optimizer, **kwargs)
            self.scaler.update()

    data = batches()
    for sample in data[0]['data_samples']:
        sample.set_metainfo(dict(factor=30.))
    runner = run(tmp_path / 'a', data, wrapper=dict(type='Scaled'), save=False)
    assert runner.optim_wrapper.scaler.get_scale() < 3e38  # it did skip
    with pytest.raises(NonFiniteError, match='iteration 2: the loss is NaN'):
        run(tmp_path / 'b', batches([1]), wrapper=dict(type='Scaled'), save=False)
    run(tmp_path / 'c', batches([1]), dict(action='skip'), wrapper=dict(type='Scaled'), save=False)


def test_options():
    with pytest.raises(UserError, match="action='ignore' must be 'stop' or 'skip'"):
        NonFiniteHook('ignore')
    for budget in (-1, 1.5, True, 'x'):
        with pytest.raises(UserError, match='must be an integer of at least 0'):
            NonFiniteHook('skip', budget)


def test_budget_without_effect(capsys):
    NonFiniteHook(budget=3)
    assert "budget=3 has no effect with action='stop'" in capsys.readouterr().err


def test_names_of_a_batch():
    assert files_of(dict(data_samples=[SimpleNamespace(img_path='a.png'), SimpleNamespace(img_id=3), {}])) == [
        'a.png', 'image 3', 'image 2 of the batch']
    assert files_of(dict(data_samples=[dict(left_path='l.png')])) == ['l.png']
    assert files_of([1, 2]) == [] and files_of(None) == []


def test_inputs_of_any_layout():
    nan = torch.tensor([1., float('nan')])
    one = torch.ones(2)
    names = [SimpleNamespace(img_path=name) for name in 'abc']
    for inputs, bad in (([one, nan, one], ['b']), (torch.stack([one, one, nan]), ['c']), ([one, one, one], []),
                        (dict(left=[one, nan], right=[nan, one]), ['a', 'b']),
                        (torch.full((3, 2), 255, dtype=torch.uint8), []),
                        ([torch.full((2,), 3e38), one], [])):
        batch = dict(inputs=inputs, data_samples=names)
        cleaned, found = clean_inputs(batch)
        assert found == bad and (cleaned is batch) == (not bad)
        assert not clean_inputs(cleaned)[1]
    branches = dict(inputs=dict(sup=[one], unsup=[nan]), data_samples=dict(sup=names[:1], unsup=names[1:]))
    assert clean_inputs(branches)[1] == ['b']
