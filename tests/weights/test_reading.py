"""Reading checkpoints: what loads, what is refused in which words, and how a state dict compares with a model."""
import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer, MessageHub
from safetensors.torch import save_file
from torch import nn

from mmkcla.checkpoint import (
    LoadReport,
    compare,
    fetch_state_dict,
    load_matching,
    read_checkpoint,
    state_dict_of,
)
from mmkcla.errors import UserError


def net():
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4), fc=nn.Linear(4, 2)))


def same(ours, theirs):
    return list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def refusal(path, match):
    """The one line with which ``path`` is refused."""
    with pytest.raises(UserError, match=match) as error:
        read_checkpoint(path)
    message = str(error.value)
    assert '\n' not in message and '\x1b' not in message and str(path) in message
    assert 'weights_only' not in message and 'trust the source' not in message  # torch's advice is not ours
    return message


# What loads -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('suffix', ['.pth', '.pt', '.pth.tar'])
@pytest.mark.parametrize('wrap', [
    lambda weights: weights,
    lambda weights: {'state_dict': weights, 'epoch': 3},
    lambda weights: {'model': weights, 'optimizer': {}},
    lambda weights: {'state_dict': {f'module.{name}': value for name, value in weights.items()}},
    lambda weights: {'state_dict': {**weights, 'version': 2, 'note': 'x'}},
], ids=['bare', 'state_dict', 'model', 'parallel', 'more than tensors'])
def test_round_trip(tmp_path, zipped, suffix, wrap):
    weights = net().state_dict()
    torch.save(wrap(weights), path := tmp_path / f'net{suffix}', _use_new_zipfile_serialization=zipped)
    assert same(state_dict_of(read_checkpoint(path)), weights)
    assert same(fetch_state_dict(str(path)), weights)
    assert same(fetch_state_dict(path), weights)


def test_round_trip_safetensors(tmp_path):
    weights = net().state_dict()
    save_file(weights, path := tmp_path / 'net.safetensors')
    read = state_dict_of(read_checkpoint(path))
    assert same({name: read[name] for name in weights}, weights) and len(read) == len(weights)


def test_data_parallel_wraps_the_same_names(tmp_path):
    model = net()
    torch.save(nn.DataParallel(model).state_dict(), path := tmp_path / 'net.pth')
    assert list(torch.load(path))[0].startswith('module.')
    assert same(state_dict_of(read_checkpoint(path)), model.state_dict())


def test_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    torch.save(net().state_dict(), tmp_path / 'net.pth')
    assert state_dict_of(read_checkpoint('~/net.pth'))


def mmengine_checkpoint():
    """As mmengine's runner writes one in the middle of a training."""
    hub = MessageHub.get_instance('test_checkpoint')
    for step in range(3):
        hub.update_scalar('train/loss', 1. / (step + 1))
    hub.update_info('best_score', np.float32(0.5))
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    return {
        'meta': {'epoch': 1, 'iter': 3, 'seed': 7, 'cfg': 'model = dict()', 'hook_msgs': {'best_ckpt': 'a.pth'},
                 'dataset_meta': {'classes': ('a', 'b'), 'palette': [(1, 2, 3)], 'ids': np.arange(3, dtype=np.int16)},
                 'scores': [np.float64(0.25), np.int64(3), np.bool_(True), np.uint8(2), np.str_('x'), np.float16(1)]},
        'state_dict': model.state_dict(), 'message_hub': hub.state_dict(), 'optimizer': optimizer.state_dict(),
        'param_schedulers': [{'last_step': 3, 'base_values': [0.1], 'verbose': False}]}


@pytest.mark.parametrize('zipped', [True, False])
def test_checkpoint_of_mmengine(tmp_path, zipped):
    checkpoint = mmengine_checkpoint()
    torch.save(checkpoint, path := tmp_path / 'epoch_1.pth', _use_new_zipfile_serialization=zipped)
    read = read_checkpoint(path)
    assert list(read) == list(checkpoint)
    assert same(state_dict_of(read), checkpoint['state_dict'])
    history = read['message_hub']['log_scalars']['train/loss']
    assert type(history) is HistoryBuffer
    assert history.mean() == pytest.approx((1 + 1 / 2 + 1 / 3) / 3) and history.statistics('current') == 1 / 3
    assert read['meta']['scores'] == [0.25, 3, True, 2, 'x', 1]
    assert read['meta']['dataset_meta']['ids'].tolist() == [0, 1, 2]
    moments = read['optimizer']['state'][0]['exp_avg']
    assert torch.equal(moments, checkpoint['optimizer']['state'][0]['exp_avg']) and moments.any()
    MessageHub.get_instance('resumed').load_state_dict(read['message_hub'])
    assert MessageHub.get_instance('resumed').get_scalar('train/loss').current() == 1 / 3


@pytest.mark.parametrize('theirs', [b'numpy._core.', b'numpy.core.'])
def test_checkpoint_of_the_other_numpy(tmp_path, theirs):
    """numpy 2 calls numpy.core numpy._core; either's files load under either."""
    torch.save(mmengine_checkpoint(), path := tmp_path / 'old.pth', _use_new_zipfile_serialization=False)
    content = path.read_bytes().replace(b'numpy._core.', b'numpy.core.').replace(b'numpy.core.', theirs)
    assert theirs + b'multiarray' in content
    path.write_bytes(content)
    assert read_checkpoint(path)['message_hub']['log_scalars']['train/loss'].current() == 1 / 3


# What is refused --------------------------------------------------------------------------------------------------

class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize(('protocol', 'zipped'), [
    (2, True), (4, True), (2, False), *((protocol, None) for protocol in range(6))])
@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
def test_hostile_pickle_runs_nothing(tmp_path, protocol, zipped):
    content, path = {'state_dict': {'a': 1}, 'extra': Hostile(tmp_path / 'marker')}, tmp_path / 'net.pth'
    if zipped is None:
        path.write_bytes(pickle.dumps(content, protocol))
    else:
        torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    if protocol == 0:  # text, to all appearances
        refusal(path, 'is truncated or not a checkpoint')
    else:
        refusal(path, 'contains more than weights .*it is refused, since loading it could run code'
                if protocol < 4 or zipped else 'is a plain pickle and not written by torch.save')
    assert not (tmp_path / 'marker').exists()
    if zipped is None:
        pickle.loads(path.read_bytes())
        assert (tmp_path / 'marker').exists()  # the file is what it seems


def test_attribute_access_stays_closed_after_reading(tmp_path):
    torch.save(mmengine_checkpoint(), path := tmp_path / 'epoch_1.pth')
    with torch.serialization.safe_globals([HistoryBuffer]):  # of someone else
        before = set(torch.serialization.get_safe_globals())
        read_checkpoint(path)
        assert set(torch.serialization.get_safe_globals()) == before
    for owner, name in ((HistoryBuffer, '__init__'), (HistoryBuffer, 'register_statistics'), (np.ndarray, 'max')):
        class Reaching:
            def __reduce__(self, owner=owner, name=name):
                return getattr, (owner, name)

        torch.save({'a': Reaching()}, path)
        refusal(path, r'contains more than weights \(builtins.getattr\); it is refused')


def test_whole_modules_are_refused_by_name(tmp_path):
    torch.save(nn.Linear(1, 1), path := tmp_path / 'net.pth')
    message = refusal(path, r'contains more than weights \(torch.nn.modules.linear.Linear\); it is refused')
    assert message.endswith('If you trust it, save only its state_dict')


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('share', [0.01, 0.3, 0.5, 0.9, 0.999])
def test_truncated(tmp_path, share, zipped):
    torch.save(net().state_dict(), path := tmp_path / 'net.pth', _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    path.write_bytes(content[:int(share * len(content))])
    refusal(path, r'is truncated or not a checkpoint \(')


@pytest.mark.parametrize('share', [0., 0.05, 0.5, 0.99])
def test_truncated_safetensors(tmp_path, share):
    save_file(net().state_dict(), path := tmp_path / 'net.safetensors')
    content = path.read_bytes()
    path.write_bytes(content[:int(share * len(content))])
    refusal(path, 'is truncated or not a safetensors file')


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
def test_damaged_bytes_never_end_in_another_error(tmp_path):
    torch.save(net().state_dict(), path := tmp_path / 'net.pth', _use_new_zipfile_serialization=False)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(content)
        for position in rng.integers(0, 600, 3):
            damaged[position] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            read_checkpoint(path)
        except UserError as error:
            assert '\n' not in str(error)


@pytest.mark.parametrize(('content', 'reason'), [
    (b'', 'the file is empty'),
    (b'hello world\nand more', "the file starts with 'hello world'"),
    (b'<!DOCTYPE html><html><head>', "the file starts with '<!DOCTYPE html><html><head>'"),
    (b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n', "the file starts with 'version https://git-lfs."),
    (bytes(range(128, 256)), 'Unsupported operand 130'),
])
@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
def test_other_files(tmp_path, content, reason):
    (path := tmp_path / 'net.pth').write_bytes(content)
    refusal(path, r'is truncated or not a checkpoint \(' + reason)


def test_no_file(tmp_path):
    refusal(tmp_path / 'none.pth', 'does not exist')
    refusal(tmp_path, 'is not a file')
    (tmp_path / 'folder.safetensors').mkdir()
    refusal(tmp_path / 'folder.safetensors', 'is not a file')


def test_unreadable_file(tmp_path, monkeypatch):
    (path := tmp_path / 'net.pth').write_bytes(b'x')

    def denied(*args, **kwargs):
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(torch, 'load', denied)
    refusal(path, 'cannot be read: Permission denied')


@pytest.mark.parametrize('content', [torch.zeros(3), [torch.zeros(3)]])
def test_not_a_dictionary(tmp_path, content):
    torch.save(content, path := tmp_path / 'net.pth')
    refusal(path, f'contains a {type(content).__name__}, not a dictionary of weights')


@pytest.mark.parametrize('checkpoint', [{'epoch': 1, 'args': 2}, {'state_dict': {}, 'meta': {}}, {}])
def test_no_weights(checkpoint):
    with pytest.raises(UserError, match='the checkpoint contains no weights; its keys are: ' + ', '.join(checkpoint)):
        state_dict_of(checkpoint)


# Prefixes and addresses -------------------------------------------------------------------------------------------

@pytest.mark.parametrize('prefix', ['backbone', 'backbone.'])
def test_prefix(tmp_path, prefix):
    weights = net().state_dict()
    whole = {f'backbone.{name}': value for name, value in weights.items()}
    torch.save({'state_dict': {**whole, 'backbones.x': torch.zeros(1), 'head.fc': torch.zeros(1)}},
               path := tmp_path / 'net.pth')
    assert same(fetch_state_dict(path, prefix), weights)
    with pytest.raises(UserError, match=r"net.pth has no entry with the prefix 'neck\.'; its entries start with: "
                       'backbone, backbones, head'):
        fetch_state_dict(path, 'neck')


# Comparing --------------------------------------------------------------------------------------------------------

def test_compare_counts():
    model = net()
    weights = dict(model.state_dict())
    assert compare(model, weights).complete
    assert compare(model, weights).summary() == '9 matched, 0 missing, 0 unexpected, 0 mismatched in shape'
    del weights['fc.bias'], weights['norm.num_batches_tracked']
    weights['fc.weight'] = torch.zeros(3, 4)
    weights.update({f'head.{i}': torch.zeros(1) for i in range(5)})
    report = compare(model, weights)
    assert report == LoadReport(
        matched=['conv.weight', 'conv.bias', 'norm.weight', 'norm.bias', 'norm.running_mean', 'norm.running_var'],
        missing=['fc.bias'], unexpected=[f'head.{i}' for i in range(5)], mismatched=['fc.weight'])
    assert not report.complete
    assert report.summary() == (
        '6 matched, 1 missing, 5 unexpected, 1 mismatched in shape (missing: fc.bias; '
        'unexpected: head.0, head.1, head.2 and 2 more; mismatched: fc.weight)')


def test_old_files_without_step_counters_are_complete():
    model = net()
    weights = {name: value for name, value in model.state_dict().items() if 'num_batches' not in name}
    assert compare(model, weights).complete and len(compare(model, weights).matched) == 8


def test_load_matching_loads_what_fits():
    model, other = net(), net()
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights = {**other.state_dict(), 'fc.weight': torch.zeros(3, 4), 'extra': torch.zeros(1)}
    del weights['conv.bias']
    report = load_matching(model, weights)
    assert (report.missing, report.unexpected, report.mismatched) == (['conv.bias'], ['extra'], ['fc.weight'])
    for name, tensor in model.state_dict().items():
        source = start if name in ('conv.bias', 'fc.weight') else other.state_dict()
        assert torch.equal(tensor, source[name]), name
    assert not torch.equal(start['conv.weight'], other.state_dict()['conv.weight'])
