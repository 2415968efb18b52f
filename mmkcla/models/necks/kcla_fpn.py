"""FPN whose top-down pathway is a KCLA recurrence."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ...errors import UserError
from ...registry import MODELS
from .cross_level import CrossLevelAttention

if find_spec('mmdet'):
    from mmdet.models.necks import FPN
else:  # the same arguments and parameter names
    from mmseg.models.necks import FPN


@MODELS.register_module()
class KCLAFPN(FPN):
    r"""FPN with its top-down addition replaced by a KCLA recurrence over the laterals L, from coarse to fine::

        P_top = L_top + s ⊙ O_top            P_i = L_i + (1 − s) ⊙ up(P_{i+1}) + s ⊙ O_i

    O_i is retrieved by KCLA at L_i, from L_i and the running mean of the coarser laterals (resampled). s is the layer
    scale per channel (``layer_scale_init``). At s = 0, the default initial value, this is FPN bit for bit, so detectors
    trained with FPN can be loaded and trained further. At s = 1 coarser levels contribute through the recurrence only.
    This design is ours, not the paper's.

    Drop-in replacement for ``FPN``: same arguments, parameter names and number of outputs.

    Args:
        args, kwargs: passed to the FPN of mmdet or mmseg.
        layer_attention: options of KCLA, or any other layer attention; see :class:`CrossLevelAttention`.
        carry: see :class:`CrossLevelAttention`.
        attention_norm_cfg: config of the norm layers of the attention (``norm_cfg`` is that of the FPN).

    Raises:
        UserError: for fewer than two backbone levels, or unknown options.
    """

    def __init__(self, *args: Any, layer_attention: Mapping = dict(type='KCLA'), carry: str = 'keep',
                 attention_norm_cfg: Mapping = dict(type='BN'), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.top_down = CrossLevelAttention(self.out_channels, len(self.lateral_convs), layer_attention, False, carry,
                                            attention_norm_cfg)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute ``num_outs`` maps ``(B, out_channels, H, W)`` from the backbone's maps, fine to coarse.

        Raises:
            UserError: if the number of inputs differs from the length of ``in_channels``.
        """
        if len(inputs) != len(self.in_channels):
            raise UserError(f'KCLAFPN has in_channels={list(self.in_channels)}, but the backbone returns {len(inputs)} '
                            'maps; check its out_indices')
        laterals = [conv(x) for conv, x in zip(self.lateral_convs, inputs[self.start_level:], strict=False)]
        paths = self._paths(laterals)
        outs = [conv(path) for conv, path in zip(self.fpn_convs, paths, strict=False)]
        source = dict(on_input=inputs[self.backbone_end_level - 1], on_lateral=paths[-1],
                      on_output=outs[-1]).get(self.add_extra_convs)
        for level in range(len(paths), self.num_outs):
            if source is None:
                outs.append(F.max_pool2d(outs[-1], 1, stride=2))
                continue
            if level > len(paths):
                source = outs[-1].relu() if self.relu_before_extra_convs else outs[-1]
            outs.append(self.fpn_convs[level](source))
        return tuple(outs)

    def _paths(self, laterals: list[Tensor]) -> list[Tensor]:
        paths: list[Tensor] = []
        state = None
        for i, lateral in enumerate(reversed(laterals)):
            retrieved, state = self.top_down.step(i, lateral, state, paths[-1] if paths else None)
            if paths:
                scale = self.top_down.layers[i].layer_scale
                if scale is not None:  # without a layer scale only the recurrence is added
                    lateral = lateral + self._up(paths[-1], lateral) * (1 - scale)[:, None, None].to(lateral.dtype)
            paths.append(lateral + retrieved)
        return paths[::-1]

    def _up(self, path: Tensor, lateral: Tensor) -> Tensor:
        size: dict[str, Any] = {} if 'scale_factor' in self.upsample_cfg else dict(size=lateral.shape[2:])
        return F.interpolate(path, **size, **self.upsample_cfg)
