"""The registries of scope ``mmkcla``, children of mmengine's roots.

mmengine imports this module by itself when a config says ``type='mmkcla.…'``; so it may import nothing but mmengine
(an ImportError here would surface as "not in the registry"). The modules that register are named in ``locations``.
"""
from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import Registry

MODELS = Registry('model', parent=MMENGINE_MODELS, scope='mmkcla', locations=['mmkcla.models', 'mmkcla.stereo.model'])
DATASETS = Registry('dataset', parent=MMENGINE_DATASETS, scope='mmkcla',
                    locations=['mmkcla.datasets.registration', 'mmkcla.stereo.dataset'])
TRANSFORMS = Registry('transform', parent=MMENGINE_TRANSFORMS, scope='mmkcla',
                      locations=['mmkcla.datasets.transforms', 'mmkcla.stereo.transforms'])
# checks of data sets before a run (mmkcla.datasets.check), by the name of the data set's class
DATA_CHECKS = Registry('data check', scope='mmkcla',
                       locations=['mmkcla.datasets.detection.check', 'mmkcla.datasets.segmentation.check'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='mmkcla', locations=['mmkcla.runtime.hooks'])
METRICS = Registry('metric', parent=MMENGINE_METRICS, scope='mmkcla',
                   locations=['mmkcla.evaluation', 'mmkcla.stereo.metric'])
