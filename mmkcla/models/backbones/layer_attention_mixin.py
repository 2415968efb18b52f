"""Add a layer attention after each block of any OpenMMLab ResNet, without copying the ResNet."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from mmengine.logging import print_log
from mmengine.model import BaseModule, PretrainedInit
from mmengine.utils.dl_utils.parrots_wrapper import _BatchNorm
from torch import Tensor, nn

from ...errors import UserError
from ...layers import LayerAttention, layer_attention_class
from ...layers.base import State
from ...layers.common import checkpointed
from ...utils.text import unknown_keyword
from ...weights.addresses import fetch_checkpoint
from ...weights.matching import load_matching
from ...weights.method_record import ADDED, DROPPED, REPLACED, Difference, differences, require_same_method
from ...weights.reading import weights_below
from ..head_widths import log_head_widths
from ..norms import build_norm, check_norm_cfg
from . import host_resnets
from .host_resnets import run_block

ATTENTION_PREFIX = 'layer_attentions.'

if TYPE_CHECKING:
    from typing_extensions import Self

    from .host_resnets import HostBlock

    class HostResNet(nn.Module):
        """Common interface of the OpenMMLab ResNets, as far as the mixin uses it."""

        arch_settings: dict[Any, tuple[Any, Sequence[int]]]
        conv1: nn.Module
        norm1: nn.Module
        relu: nn.Module
        maxpool: nn.Module
        output_img: bool  # DetectoRS only
        pretrained: Any  # DetectoRS only
        stem_channels: int
        deep_stem: bool
        depth: int
        dilations: Sequence[int]
        frozen_stages: int
        init_cfg: Any
        is_init: bool
        norm_cfg: dict[str, Any]
        norm_eval: bool
        num_stages: int
        out_indices: Sequence[int]
        res_layers: list[str]
        strides: Sequence[int]
        with_cp: bool

        def _freeze_stages(self) -> None: ...
        def forward(self, x: Tensor) -> tuple[Tensor, ...]: ...
        def rfp_forward(self, x: Tensor, rfp_feats: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
        def init_weights(self) -> None: ...
        def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]: ...
else:
    HostResNet = object


class LayerAttentionMixin(HostResNet):
    """Mixin for a ResNet class; list it first: ``class MyNet(LayerAttentionMixin, mmdet.models.ResNeXt)``.

    The trunk keeps its parameter names. The attentions are added as ``layer_attentions.<stage>.<block>``. After every
    block, ``x = block(x); r, state = attention(x, state, shortcut); x = x + r``. Supports the ResNets of mmdet, mmseg
    and mmpretrain and their variants; ``docs/host-backbones.md`` lists them. Deformable convolutions and plugins inside
    the blocks are left to the base class.

    Args:
        args: passed to the base class.
        layer_attention: ``dict(type='KCLA', …)`` with any layer attention and its options. With None the network is
            the plain base class, bit for bit.
        attention_norm_eval: effect of ``norm_eval=True`` on the batch norms of the attentions. None: they are trained,
            unless ``init_cfg=dict(type='Pretrained', …)`` loaded weights for them, in which case they are frozen like
            those of the trunk. True: always frozen. False: always trained. ``load_from`` and ``resume`` have no
            influence, so a resumed run behaves like the original one.
        kwargs: passed to the base class.

    Raises:
        UserError: for an unknown type, options that do not fit the number of channels, or a base class to which no
            layer attention can be added.
    """

    def __init__(self, *args: Any, layer_attention: dict | None = None, attention_norm_eval: bool | None = None,
                 **kwargs: Any) -> None:
        if layer_attention is not None:
            host_resnets.check_host(cast(nn.Module, self), LayerAttentionMixin)
        super().__init__(*args, **kwargs)
        self.attention_norm_eval = attention_norm_eval
        self._attention_loaded = False
        self._weights_loaded = False
        self._warned = False
        # without attention, the base class's own forward is as good, and right for every class
        self._runs_stages = layer_attention is not None or (
            self.with_cp and host_resnets.knows_forward(cast(nn.Module, self), LayerAttentionMixin))
        if self._runs_stages:
            self._take_over_checkpointing()
        self.layer_attentions: Sequence[Sequence[LayerAttention]] | None = None  # an nn.ModuleList of such
        if layer_attention is not None:
            if not isinstance(layer_attention, Mapping):
                raise UserError(f'layer_attention={layer_attention!r} must be a dict, for example dict(type=\'KCLA\')')
            self.layer_attentions = self._build_layer_attentions(dict(layer_attention))
            if self.layer_attentions[0][0].needs_shortcut:
                host_resnets.keep_shortcuts(self._blocks())
        # the base class froze its stages before the attentions existed
        self._freeze_stages()

    # Construction -----------------------------------------------------------------------------------------------

    def _stages(self) -> list[Sequence[HostBlock]]:
        return [getattr(self, name) for name in self.res_layers]

    def _blocks(self) -> list[HostBlock]:
        return [block for stage in self._stages() for block in stage]

    def _take_over_checkpointing(self) -> None:
        """Disable the base class's reentrant checkpointing, which breaks DDP and torch.compile; done here instead."""
        for block in self._blocks():
            block.with_cp = False

    def _build_layer_attentions(self, options: dict[str, Any]) -> Sequence[Sequence[LayerAttention]]:
        method = layer_attention_class(options.pop('type', None))
        norm_cfg = check_norm_cfg(options.pop('norm_cfg', None) or self.norm_cfg)
        norm_cfg.pop('requires_grad', None)
        options.setdefault('norm_layer', partial(build_norm, norm_cfg))
        stages = nn.ModuleList()
        carry: int | None = None
        for i, blocks in enumerate(self._stages()):
            channels = host_resnets.out_channels(blocks[-1])
            try:
                stages.append(method.build_stage(channels, len(blocks), carry_channels=carry,
                                                 carry_stride=self.strides[i], **options))
            except TypeError as error:
                unknown = unknown_keyword(error)
                if unknown is None:
                    raise
                raise method.unknown_option(unknown.strip("'")) from error
            carry = channels
        log_head_widths(type(self).__name__, method, options, chain.from_iterable(cast('Any', stages)))
        return cast('Sequence[Sequence[LayerAttention]]', stages)

    # Output specification ----------------------------------------------------------------------------------------

    @property
    def stem_stride(self) -> int:
        """Stride of the first stage's input with respect to the image, in pixels."""
        return host_resnets.stem_stride(cast(nn.Module, self))

    @property
    def out_channels(self) -> tuple[int, ...]:
        """Number of channels of each output."""
        image = (host_resnets.image_channels(cast(nn.Module, self)), ) if self._returns_image() else ()
        return image + tuple(host_resnets.out_channels(self._stages()[i][-1]) for i in self._out_stages())

    @property
    def out_strides(self) -> tuple[int, ...]:
        """Stride of each output with respect to the input, in pixels."""
        image = (1, ) if self._returns_image() else ()
        return image + tuple(self.stem_stride * math.prod(self.strides[:i + 1]) for i in self._out_stages())

    def _returns_image(self) -> bool:
        return getattr(self, 'output_img', False)

    def _out_stages(self) -> list[int]:
        """Output stages, always from fine to coarse, whatever the order of ``out_indices``."""
        return [i for i in range(self.num_stages) if i in self.out_indices]

    # Forward -----------------------------------------------------------------------------------------------------

    def stem_map(self, x: Tensor) -> Tensor:
        """Compute the stem's map before the max-pool: ``(B, 3, H, W) -> (B, C, H/2, W/2)``."""
        for part in host_resnets.stem_parts(cast(nn.Module, self)):
            x = part(x)
        return x

    def forward_stem(self, x: Tensor) -> Tensor:
        """Compute the input of the first stage: ``(B, 3, H, W) -> (B, C, H/4, W/4)``; with the stride of the stem."""
        x = self.stem_map(x)
        return self.maxpool(x) if hasattr(self, 'maxpool') else x  # RegNet and ResNet_CIFAR have none

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Compute the maps of ``out_indices`` from an image ``(B, 3, H, W)``. Always returns a tuple; with DetectoRS's
        ``output_img`` the image is its first entry."""
        if not self._runs_stages:
            return super().forward(x)
        outs = self.forward_stages(self.forward_stem(x))
        return (x, *outs) if self._returns_image() else outs

    def rfp_forward(self, x: Tensor, rfp_feats: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The forward of DetectoRS's recursive pyramid: ``rfp_feats`` holds the map fed back to each stage."""
        if not self._runs_stages:
            return super().rfp_forward(x, rfp_feats)
        return self.forward_stages(self.forward_stem(x), rfp_feats)

    def forward_stages(self, x: Tensor, rfp_feats: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
        """Compute the outputs from the input of the first stage."""
        outs: list[Tensor] = []
        state: State | None = None
        for i, blocks in enumerate(self._stages()):
            attentions: Sequence[LayerAttention | None] = (
                [None] * len(blocks) if self.layer_attentions is None else self.layer_attentions[i])
            feedback = {} if rfp_feats is None else dict(rfp_feat=rfp_feats[i] if i else None)
            for block, attention in zip(blocks, attentions, strict=True):
                # symbolic tracing passes proxies, which cannot be checkpointed
                if self.with_cp and isinstance(x, Tensor) and x.requires_grad:
                    x, shortcut = checkpointed(block, run_block, block, x, attention, feedback)
                else:
                    x, shortcut = run_block(block, x, attention, feedback)
                if attention is not None:
                    retrieved, state = attention(x, state, shortcut)
                    x = x + retrieved
            if i in self.out_indices:
                outs.append(x)
        return tuple(outs)

    # Freezing and modes ------------------------------------------------------------------------------------------

    def _freeze_stages(self) -> None:
        super()._freeze_stages()
        for attentions in (getattr(self, 'layer_attentions', None) or [])[:max(self.frozen_stages, 0)]:
            attentions.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Set the mode. Frozen stages, and with ``norm_eval`` the batch norms, stay in evaluation mode."""
        super().train(mode)
        if mode and self.norm_eval:
            self._warn_of_norm_eval()
            if self.layer_attentions is not None and not self._attention_norms_frozen():
                live = self.layer_attentions[max(self.frozen_stages, 0):]
                for attention in chain.from_iterable(live):
                    for module in attention.modules():
                        if isinstance(module, _BatchNorm):
                            module.train()
        return self

    def _attention_norms_frozen(self) -> bool:
        return self._attention_loaded if self.attention_norm_eval is None else self.attention_norm_eval

    def _warn_of_norm_eval(self) -> None:
        if self._warned or self._weights_loaded or not self.is_init:
            return
        if not any(isinstance(module, _BatchNorm) for module in self.modules()):
            return
        self._warned = True
        print_log(f'{type(self).__name__}: norm_eval=True, but no pretrained weights were loaded; the batch norms keep '
                  'their initial statistics. Load weights (init_cfg, load_from) or set norm_eval=False.',
                  logger='current', level=30)

    # Weights -----------------------------------------------------------------------------------------------------

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._weights_loaded |= any(name.startswith(prefix + 'layer1.') for name in state_dict)

    def init_weights(self) -> None:
        """Initialise the trunk and the attentions by their own rules, then load ``Pretrained`` weights.

        Raises:
            UserError: if the pretrained weights lack part of the trunk. Missing attention entries, and modules that
                this class adds to its blocks and the checkpoint has in none (``se_layer``), are allowed and logged.
        """
        if self.is_init:
            BaseModule.init_weights(self)  # warns about the second call; mmpretrain's own would zero weights again
            return
        cfgs = self.init_cfg if isinstance(self.init_cfg, list) else [self.init_cfg] if self.init_cfg else []
        pretrained = [cfg for cfg in cfgs if cfg['type'] in ('Pretrained', PretrainedInit)]
        given, self.init_cfg = self.init_cfg, [cfg for cfg in cfgs if cfg not in pretrained]
        path = getattr(self, 'pretrained', None)  # DetectoRS loads it by itself, before the attentions are initialised
        if isinstance(path, str):
            pretrained.append(dict(checkpoint=path))
            self.pretrained = None
        super().init_weights()
        self.init_cfg = given
        if isinstance(path, str):
            self.pretrained = path
        for attentions in self.layer_attentions or []:
            for attention in attentions:
                attention.reset_parameters()
        for cfg in pretrained:
            self._load_pretrained(cfg['checkpoint'], cfg.get('prefix'))
        self._log_attention_norms()

    def _load_pretrained(self, checkpoint: str, prefix: str | None) -> None:
        content = fetch_checkpoint(checkpoint)
        weights = weights_below(content, checkpoint, prefix)
        self._check_methods(checkpoint, differences(self, content, prefix or ''))
        if not prefix and any(name.startswith('backbone.layer') for name in weights):
            raise UserError(f'{checkpoint} contains a complete model; add prefix=\'backbone.\' to init_cfg to '
                            'load its backbone')
        report = load_matching(self, self._pretrained_names(weights))
        attention = [name for name in report.missing if name.startswith(ATTENTION_PREFIX)]
        trunk = [name for name in report.missing if not name.startswith(ATTENTION_PREFIX)]
        heads = [name for name in report.unexpected if name.startswith(('fc.', 'head.', 'neck.'))]
        report.unexpected = [name for name in report.unexpected if name not in heads]
        added = [] if report.unexpected else host_resnets.added_to_blocks(trunk, self._trunk_names())
        if (trunk and not added) or report.mismatched:
            report.missing = trunk
            raise UserError(f'{checkpoint} does not fit {type(self).__name__}-{self.depth}: {report.summary()}')
        own = sum(name.startswith(ATTENTION_PREFIX) for name in self.state_dict())
        self._attention_loaded = own > 0 and not attention
        message = f'{type(self).__name__} loaded {checkpoint}: {len(report.matched)} matched'
        if attention:
            message += (f', {len(attention)} layer-attention entries are missing and keep their initial values'
                        + ('' if self._starts_plain() else ' (layer_scale_init=0. would start from the plain network)'))
        if trunk:
            message += (f', {len(trunk)} entries of the blocks ({", ".join(added)}) are missing and keep their '
                        'initial values')
        if report.unexpected:
            message += f', {len(report.unexpected)} not used ({", ".join(report.unexpected[:3])})'
        print_log(message, logger='current', level=30 if trunk else 20)
        self._warn_of_frozen_start(bool(attention))

    def _check_methods(self, checkpoint: str, found: list[Difference]) -> None:
        require_same_method([one for one in found if one.kind == REPLACED], checkpoint)
        for _, option, saved, here in [one for one in found if one.kind not in (ADDED, DROPPED)][:1]:
            print_log(f'{checkpoint} was made with {option}={saved!r}; the config has {option}={here!r}, so the layer '
                      'attentions do not start where they ended', logger='current', level=30)

    def _trunk_names(self) -> list[str]:
        return [name for name in self.state_dict() if not name.startswith(ATTENTION_PREFIX)]

    def _pretrained_names(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Map pretrained weights to the names of this network. Override for trunks with other names."""
        return weights

    def _starts_plain(self) -> bool:
        """Whether every attention adds exactly zero at initialisation."""
        return all(getattr(attention, 'layer_scale_init', None) == 0
                   for attentions in self.layer_attentions or () for attention in attentions)

    def _warn_of_frozen_start(self, missing: bool) -> None:
        if missing and self.frozen_stages > 0 and not self._starts_plain():
            print_log(f'{type(self).__name__}: frozen_stages={self.frozen_stages} freezes layer attentions with random '
                      'weights; set layer_scale_init=0. in layer_attention, or frozen_stages=0.',
                      logger='current', level=30)

    def _log_attention_norms(self) -> None:
        if self.layer_attentions is None or not self.norm_eval:
            return
        frozen = self._attention_norms_frozen()
        reason = (f'attention_norm_eval={self.attention_norm_eval}' if self.attention_norm_eval is not None else
                  'their weights were loaded' if frozen else 'no weights were loaded for them')
        print_log(f'{type(self).__name__}: norm_eval=True; the batch norms of the layer attentions '
                  f'{"are frozen" if frozen else "are trained"} ({reason}).', logger='current')

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Layer depth for layer-wise learning rates (mmpretrain). An attention has the depth of its block."""
        start = prefix + ATTENTION_PREFIX
        if param_name.startswith(start):
            stage, rest = param_name.removeprefix(start).split('.', 1)
            param_name = f'{prefix}layer{int(stage) + 1}.{rest}'
        return super().get_layer_depth(param_name, prefix)
