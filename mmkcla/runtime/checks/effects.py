"""Settings of a training that have no effect, or another one than they suggest."""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import listed
from ..moved_variables import walk
from ..processes import SHARED_OPTIONS

if TYPE_CHECKING:
    from mmengine.config import Config

# sections of a config that a command does not read
_FOR_TRAINING = ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr', 'val_dataloader',
                 'val_cfg', 'val_evaluator', 'resume')
UNREAD = {'train': ('test_dataloader', 'test_cfg', 'test_evaluator', 'tta_model', 'tta_pipeline'),
          'test': _FOR_TRAINING + ('load_from', ), 'infer': _FOR_TRAINING + ('load_from', 'custom_hooks')}
PRETRAINED = ('checkpoint', 'pretrained')


def unread_options(command: str, options: list[str]) -> Iterator[str]:
    """Yield one line for each option of ``--cfg-options`` for a section that a command does not read; none within
    ``seeds`` and ``sweep``, whose options are for the training and the test."""
    if os.environ.get(SHARED_OPTIONS):
        return
    for option in options:
        key = option.partition('=')[0]
        first, _, rest = key.partition('.')
        if first.strip() not in UNREAD[command]:
            continue
        other = 'val' if command == 'train' else 'test'
        twin = f'{other}_{first.partition("_")[2]}'
        remedy = (f'; set {twin}{"." if rest else ""}{rest}' if first.startswith(('val_', 'test_', 'train_dataloader'))
                  and command != 'infer' else '')
        yield f'--cfg-options {key} has no effect: mmkcla {command} does not read {first}{remedy}'


def weight_notes(config: Config) -> Iterator[str]:
    """Yield one line about losses of weight 0, and one about frozen layers without pretrained weights.

    Raises:
        UserError: all losses have the weight 0.
    """
    if not isinstance(config.get('model'), dict):
        return
    model = {'model': config.model}
    weights = [(place, value) for place, value in walk(model) if place.endswith('.loss_weight')]
    zero = [place for place, value in weights if value == 0 and not isinstance(value, bool)]
    if zero and len(zero) == len(weights):
        raise UserError(f'every loss of the model has the weight 0 ({listed(zero)}): nothing would be learned')
    if zero:
        yield f'{listed(zero)} = 0: no effect on the training'
    frozen = [place for place, value in walk(model)
              if place.endswith('.frozen_stages') and isinstance(value, int) and value >= 0]
    for place in frozen:
        backbone: Any = config
        for part in place.split('.')[:-1]:
            backbone = backbone[int(part) if part.isdecimal() else part]
        if not config.get('load_from') and not _pretrained(backbone) and not _pretrained(
                {key: config.model.get(key) for key in ('init_cfg', *PRETRAINED)}):
            yield (f'{place}={backbone["frozen_stages"]} without pretrained weights: the frozen layers keep their '
                   'random values; set init_cfg or load_from, or frozen_stages=-1')


def _pretrained(part: Any) -> bool:
    return any(place.rpartition('.')[2] in PRETRAINED and value for place, value in walk(dict(part)))
