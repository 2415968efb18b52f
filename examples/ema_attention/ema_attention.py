"""A layer attention of one's own: an exponential moving average over the layers of a stage."""
import math

import torch
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import LayerAttention
from mmkcla.layers.common import global_average
from mmkcla.layers.inspection import Shares


class EMAAttention(LayerAttention):
    r"""Per channel, with m = 0 at the start of each stage::

        m ← m + σ(w) (x − m)          retrieved = DropPath(ReLU(BN(m)))

    Args:
        channels: C of the maps.
        start: σ(w) at the start, in (0, 1).
        options: of :class:`LayerAttention`.
    """

    def __init__(self, channels, start=0.5, **options):
        super().__init__(**options)
        if not 0 < start < 1:
            raise UserError(f'start={start!r} must lie between 0 and 1')
        self.start = start
        self.weight = nn.Parameter(torch.empty(channels))
        self.build_output(channels)
        self.reset_own_parameters()

    def reset_own_parameters(self):
        super().reset_own_parameters()
        nn.init.constant_(self.weight, math.log(self.start / (1 - self.start)))

    def attend(self, x, state, shortcut=None):
        """``state`` is (m, ), ``(B, C, H, W)``."""
        mean = torch.zeros_like(x) if state is None or self.opens_stage else state[0].to(x.dtype)
        mean = torch.lerp(mean, x, self.weight.sigmoid()[:, None, None].to(x.dtype))
        return self.output(mean), (mean, )

    # Optional, for `mmkcla analyse` ----------------------------------------------------------------------------------

    def layer_shares(self, calls, position):
        """σ(w_i) Π_{j>i} (1 − σ(w_j)) per channel; what is missing to 1 is the share of m = 0."""
        weights = []
        for call in calls[:position + 1]:
            own = call.layer.weight.sigmoid().expand(call.x.shape[:2])
            weights = [weight * (1 - own) for weight in weights] + [own]
        return Shares(list(range(1, position + 2)), torch.stack(weights))

    def stage_keys(self, calls):
        """An average compares no keys; in their place the pooled maps, as one head: how alike the layers' maps are."""
        return torch.stack([global_average(call.x) for call in calls])[:, :, None]
