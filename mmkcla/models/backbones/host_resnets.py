"""What the mixin knows of the ResNets of mmdet, mmseg and mmpretrain: which it fits, their stems and blocks."""
from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...errors import UserError
from ...layers import LayerAttention

if TYPE_CHECKING:
    class HostBlock(nn.Module):
        """Common interface of the residual blocks in OpenMMLab; basic blocks have no ``conv3``."""

        conv1: nn.Conv2d
        conv2: nn.Conv2d
        conv3: nn.Conv2d
        downsample: ShortcutKeeper | None  # nn.Sequential in the base class
        with_cp: bool
        rfp_forward: Callable[[Tensor, Tensor | None], Tensor]  # DetectoRS only

HOSTS = ('mmdet', 'mmseg', 'mmpretrain')
FORWARDS = ('ResNet', 'RegNet', 'ResNet_CIFAR', 'DetectoRS_ResNet')  # classes whose forward the mixin can replace
REFUSED = {
    'TridentResNet': 'its last stage passes a list of one map per branch, not a map',
    'SparseResNet': 'its maps are masked, and an average over all positions is not that of the visible ones',
}


def check_host(net: nn.Module, mixin: type) -> None:
    """Check that a layer attention can be added to the base class of a network, from the classes alone.

    Raises:
        UserError: if it cannot; the message names what is missing.
    """
    kinds = type(net).__mro__
    kinds = kinds[kinds.index(mixin) + 1:]
    host = kinds[0].__name__
    missing = [name for name in ('make_res_layer', '_freeze_stages') if not hasattr(kinds[0], name)]
    if missing:
        raise UserError(f'layer_attention does not fit {host}: it has no {", ".join(missing)}, so it is not built like '
                        'the ResNets of mmdet, mmseg and mmpretrain')
    for kind in kinds:
        if _is_of_host(kind) and kind.__name__ in REFUSED:
            raise UserError(f'layer_attention does not fit {host}: {REFUSED[kind.__name__]}')
    if not knows_forward(net, mixin):
        raise UserError(f'layer_attention does not fit {host}: it would replace the forward of {host}, which '
                        'LayerAttentionMixin does not know; define it in the class that lists the mixin first')


def knows_forward(net: nn.Module, mixin: type) -> bool:
    """Whether the forward of the base class is one that the mixin computes as well."""
    kinds = type(net).__mro__
    definer = next(kind for kind in kinds[kinds.index(mixin) + 1:] if 'forward' in vars(kind))
    return _is_of_host(definer) and definer.__name__ in FORWARDS


def _is_of_host(kind: type) -> bool:
    return kind.__module__.split('.')[0] in HOSTS


def stem_parts(net: nn.Module) -> list[nn.Module]:
    """The modules of the stem in order, without the max-pool; RegNet and ResNet_CIFAR have no deep stem."""
    children: Any = dict(net.named_children())
    return [children['stem']] if 'stem' in children else [children['conv1'], getattr(net, 'norm1'), children['relu']]  # noqa: B009


def stem_stride(net: nn.Module) -> int:
    """Stride of the first stage's input with respect to the image."""
    modules = [module for part in stem_parts(net) for module in part.modules()] + [getattr(net, 'maxpool', None)]
    strides = [module.stride for module in modules if isinstance(module, (nn.Conv2d, nn.MaxPool2d))]
    return math.prod(stride if isinstance(stride, int) else stride[0] for stride in strides)


def image_channels(net: nn.Module) -> int:
    """Channels of the image."""
    return next(module.in_channels for part in stem_parts(net) for module in part.modules()
                if isinstance(module, nn.Conv2d))


def out_channels(block: HostBlock) -> int:
    """Channels of a block's output."""
    return (block.conv3 if hasattr(block, 'conv3') else block.conv2).out_channels


def added_to_blocks(missing: Iterable[str], own: Iterable[str]) -> list[str]:
    """The modules that this network has in its blocks and the checkpoint in none (``se_layer``, ``conv2.switch``).

    Args:
        missing: names of the network that are missing in the checkpoint.
        own: all names of the network.

    Returns:
        Their names; empty if anything else is missing.
    """
    missing = set(missing)
    present = {_within_block(name) for name in own if name not in missing}
    added = {_within_block(name) for name in missing}
    if None in added or added & present:
        return []
    return sorted({str(name).rpartition('.')[0] or str(name) for name in added})


def _within_block(name: str) -> str | None:
    stage, *rest = name.split('.', 2)
    return rest[1] if stage.startswith('layer') and stage[5:].isdigit() and len(rest) == 2 else None


class ShortcutKeeper(nn.Sequential):
    """A block's downsample that keeps its output for the attention, thread by thread. Parameter names are unchanged."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.traced: Tensor | None = None  # a compiler follows an attribute, and uses one thread
        self.kept: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if torch.compiler.is_compiling():
            self.traced = out
        else:
            self.kept[threading.get_ident()] = out
        return out

    def take(self) -> Tensor | None:
        """Return what was kept, once."""
        if torch.compiler.is_compiling():
            kept, self.traced = self.traced, None
            return kept
        return self.kept.pop(threading.get_ident(), None)


def keep_shortcuts(blocks: Iterable[HostBlock]) -> None:
    """Let the blocks keep the output of their downsample."""
    for block in blocks:
        if block.downsample is not None:
            block.downsample = ShortcutKeeper(*block.downsample)


def run_block(block: HostBlock, x: Tensor, attention: LayerAttention | None,
              feedback: Mapping[str, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    """Return the block's output and, for methods that need it, its identity branch after the downsample.

    ``feedback``: ``rfp_feat`` of DetectoRS's recursive pyramid, or nothing.
    """
    call: Callable[..., Tensor] = block.rfp_forward if feedback else block
    if attention is None or not attention.needs_shortcut:
        return call(x, **feedback), None
    if block.downsample is None:
        return call(x, **feedback), x
    try:
        out = call(x, **feedback)
    finally:  # an exception stops a recomputation early; a tensor still kept would make deepcopy fail
        shortcut = block.downsample.take()
    return out, shortcut
