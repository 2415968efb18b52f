"""An interrupted training gives the same results as one that was not, bit for bit."""
import pytest
from exact import differences, outcome, train, write_classifier, write_detection, write_segmentation

WORKERS = ['train_dataloader.num_workers=2', 'train_dataloader.persistent_workers=True']
NONE = ['train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False']
ACCUMULATED = ['optim_wrapper.accumulative_counts=4']
BF16 = ['optim_wrapper.type=mmkcla.Bf16OptimWrapper']
BY_EPOCH = ['default_hooks.checkpoint.by_epoch=True']
KINDS = {'classification': (write_classifier, 'iter_15.pth'), 'segmentation': (write_segmentation, 'iter_9.pth'),
         'detection': (write_detection, 'iter_4.pth')}


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    """Return the config of a kind, and the outcome of its uninterrupted training with some options."""
    configs, outcomes = {}, {}

    def get(kind, options=()):
        write, last = KINDS[kind]
        if kind not in configs:
            configs[kind] = write(tmp_path_factory.mktemp(kind))
        key = (kind, *options)
        if key not in outcomes:
            folder = configs[kind].parent / f'whole{len(outcomes)}'
            with pytest.MonkeyPatch.context() as patch:
                train(patch, configs[kind], folder, options)
            outcomes[key] = outcome(folder, 'epoch_3.pth' if tuple(options) == tuple(BY_EPOCH) else last)
        return configs[kind], outcomes[key]
    return get


@pytest.mark.parametrize(('kind', 'options', 'first', 'resumed', 'stops'), [
    ('classification', [], [], [], (3, 5, 12)),  # in an epoch, at its end before the validation, in the last one
    ('classification', [], WORKERS, NONE, (3, )),
    ('classification', ACCUMULATED, [], [], (3, 13)),  # between two steps of the optimizer
    ('classification', BF16, [], [], (7, )),
    ('classification', BY_EPOCH, [], [], (12, )),
    ('segmentation', [], [], [], (3, 4, 8)),
    ('detection', [], [], WORKERS, (2, )),
    pytest.param('classification', [], [], WORKERS, (3, 5, 12), marks=pytest.mark.slow),
    pytest.param('segmentation', [], WORKERS, WORKERS, (1, 2, 6), marks=pytest.mark.slow),
    pytest.param('segmentation', ACCUMULATED, WORKERS, NONE, (2, 3, 5), marks=pytest.mark.slow),
    pytest.param('segmentation', BF16, [], WORKERS, (2, 3, 5), marks=pytest.mark.slow),
    pytest.param('detection', [], WORKERS, NONE, (1, 2, 3), marks=pytest.mark.slow),
    pytest.param('detection', ACCUMULATED, [], [], (1, 2, 3), marks=pytest.mark.slow),
    pytest.param('detection', BF16, [], WORKERS, (2, ), marks=pytest.mark.slow),
])
def test_resumed_is_equal(uninterrupted, tmp_path, monkeypatch, kind, options, first, resumed, stops):
    config, expected = uninterrupted(kind, options)
    train(monkeypatch, config, tmp_path / 'out', [*options, *first], stops, resumed)
    last = 'epoch_3.pth' if options == BY_EPOCH else KINDS[kind][1]
    assert differences(expected, outcome(tmp_path / 'out', last)) == []
