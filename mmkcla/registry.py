"""The registries of scope ``mmkcla``, children of mmengine's roots.

mmengine imports this module when a config contains ``type='mmkcla.…'``. It must import nothing but mmengine, since an
ImportError here would appear as "not in the registry". The modules that register are listed in ``locations``.
"""
from importlib.util import find_spec

from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import LOG_PROCESSORS as MMENGINE_LOG_PROCESSORS
from mmengine.registry import LOOPS as MMENGINE_LOOPS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import Registry

MODELS = Registry('model', parent=MMENGINE_MODELS, scope='mmkcla', locations=['mmkcla.models', 'mmkcla.stereo.model'])
DATASETS = Registry('dataset', parent=MMENGINE_DATASETS, scope='mmkcla',
                    locations=['mmkcla.datasets.registration', 'mmkcla.stereo.dataset'])
TRANSFORMS = Registry('transform', parent=MMENGINE_TRANSFORMS, scope='mmkcla',
                      locations=['mmkcla.datasets.transforms', 'mmkcla.stereo.transforms'])
# data checks before a run (mmkcla.datasets.check), by class name of the data set
DATA_CHECKS = Registry('data check', scope='mmkcla',
                       locations=['mmkcla.datasets.classification.check', 'mmkcla.datasets.detection.check',
                                  'mmkcla.datasets.segmentation.check'])
# comparisons of data sets and evaluators before a run (mmkcla.datasets.compare)
DATA_COMPARISONS = Registry('data comparison', scope='mmkcla', locations=['mmkcla.datasets.compare'])
# reports of mmkcla data verify (mmkcla.datasets.report): by class name of the data set; for paths, under any name
DATA_REPORTS = Registry('data report', scope='mmkcla',
                        locations=['mmkcla.datasets.classification.report', 'mmkcla.datasets.detection.verify',
                                   'mmkcla.datasets.segmentation.report'])
PATH_REPORTS = Registry('path report', scope='mmkcla',
                        locations=['mmkcla.datasets.detection.verify', 'mmkcla.datasets.classification.report',
                                   'mmkcla.datasets.image_report'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='mmkcla', locations=['mmkcla.runtime.hooks'])
LOOPS = Registry('loop', parent=MMENGINE_LOOPS, scope='mmkcla', locations=['mmkcla.runtime.loops'])
LOG_PROCESSORS = Registry('log_processor', parent=MMENGINE_LOG_PROCESSORS, scope='mmkcla',
                          locations=['mmkcla.runtime.log_processor'])
OPTIM_WRAPPERS = Registry('optim_wrapper', parent=MMENGINE_OPTIM_WRAPPERS, scope='mmkcla',
                          locations=['mmkcla.runtime.optim_wrapper'])
METRICS = Registry('metric', parent=MMENGINE_METRICS, scope='mmkcla',
                   locations=['mmkcla.evaluation', 'mmkcla.stereo.metric',
                              *(['mmkcla.evaluation.coco'] if find_spec('mmdet') else []),
                              *(['mmkcla.evaluation.class_scores', 'mmkcla.evaluation.confusion']
                                if find_spec('mmpretrain') else []),
                              *(['mmkcla.evaluation.iou'] if find_spec('mmseg') else [])])
