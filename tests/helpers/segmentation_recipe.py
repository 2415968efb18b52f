"""What all medical configs share."""
from mmengine.config import Config

DATASETS = {'isic2017': 'mmkcla.ISIC2017Dataset', 'isic2018': 'mmkcla.ISIC2018Dataset',
            'kvasir-seg': 'mmkcla.KvasirSEGDataset'}


def check_recipe(path) -> None:
    """The published recipe: splits, data sets, schedule, head, losses and metric."""
    config = Config.fromfile(path)
    assert config.default_scope == 'mmseg' and 'custom_imports' not in config
    data = next(name for name in DATASETS if f'_{name}-256x256' in path.stem)
    loaders = [config.train_dataloader, config.val_dataloader, config.test_dataloader]
    assert [loader.dataset.split for loader in loaders] == ['train', 'val', 'test']  # never selected on the test set
    assert {loader.dataset.type for loader in loaders} == {DATASETS[data]}
    assert {loader.dataset.data_root for loader in loaders} == {'data/' + data.replace('-', '_')}
    assert config.train_cfg.max_epochs == 300 and config.train_dataloader.batch_size == 8
    optimizer = config.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 1e-3, 1e-2)
    cosine, = config.param_scheduler
    assert cosine.type == 'CosineAnnealingLR' and cosine.T_max == cosine.end == 300 and cosine.eta_min == 1e-5
    head = config.model.decode_head
    assert (head.num_classes, head.out_channels, head.threshold) == (2, 1, 0.5)
    assert [loss.type for loss in head.loss_decode] == ['CrossEntropyLoss', 'mmkcla.BinaryDiceLoss']
    assert [loss.loss_weight for loss in head.loss_decode] == [1., 1.]
    assert config.auto_scale_lr.base_batch_size == 8
    for evaluator in (config.val_evaluator, config.test_evaluator):
        assert evaluator.type == 'mmkcla.BinarySegMetric' and evaluator.threshold == 0.5
