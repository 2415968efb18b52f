"""The one interface of all layer attentions."""
from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import UserError
from .common import checkpointed, make_drop_path

State = tuple[Tensor, ...]


class LayerAttention(nn.Module):
    """A layer that retrieves, for the map just computed, what is useful from the maps of earlier layers.

    A subclass is known to every config by its class name: ``layer_attention=dict(type='KCLA', …)``; subclasses whose
    name starts with an underscore are not. It is called as ``retrieved, state = layer(x, state, shortcut)``:

    * ``x``: the block's output, ``(B, C, H, W)``;
    * ``state``: None at the network's start, otherwise whatever the method's previous layer returned, a plain tuple of
      tensors (so that it compiles, exports and checkpoints);
    * ``shortcut``: the block's identity branch after its downsample, shaped like ``x``; given only to methods whose
      ``needs_shortcut`` is True;
    * ``retrieved``: ``(B, C, H, W)``; the next block's input is ``x + retrieved``.

    Args:
        with_cp: recompute this layer's forward in the backward pass instead of keeping its activations
            (non-reentrant checkpointing). The block's own ``with_cp`` does not cover the attention.
    """

    needs_shortcut: ClassVar[bool] = False
    cifar_options: ClassVar[dict[str, Any]] = dict(head_channels=16)  # of the papers' CIFAR experiments
    _known: ClassVar[dict[str, type[LayerAttention]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith('_'):
            LayerAttention._known[cls.__name__] = cls

    def __init__(self, with_cp: bool = False) -> None:
        super().__init__()
        self.with_cp = with_cp
        # The first layer of a stage; where it has no carry, it forgets what the previous stage left.
        self.opens_stage = False

    @classmethod
    def build_stage(cls, channels: int, depth: int, carry_channels: int | None = None, carry_stride: int = 1,
                    **options: Any) -> nn.ModuleList:
        """Build the layers of one stage.

        Args:
            channels: channels C of the stage's maps.
            depth: number of blocks, and so of layers.
            carry_channels: channels of the previous stage, None for the network's first stage.
            carry_stride: the stage's true stride (1 in a dilated stage).
            options: the method's own.

        Returns:
            ``depth`` layers. The base class makes independent ones that start anew; methods that carry over from the
            previous stage, or share modules inside one, override this.
        """
        layers = nn.ModuleList(cls(channels, **options) for _ in range(depth))
        layers[0].opens_stage = True
        return layers

    def reset_parameters(self) -> None:
        """Draw the method's own initial weights (mmengine's rules for Conv2d and friends do not apply to it)."""
        for module in self.modules():
            if module is not self and hasattr(module, 'reset_parameters'):
                module.reset_parameters()
        self.reset_own_parameters()

    def reset_own_parameters(self) -> None:
        """Draw what the layer holds itself, beside its modules; subclasses that hold more extend it."""
        if self.layer_scale is not None:
            nn.init.constant_(self.layer_scale, self.layer_scale_init)

    def build_output(self, channels: int, relu: bool, drop_path: float, layer_scale_init: float | None,
                     norm_layer: Callable[[int], nn.Module]) -> None:
        """Make what :meth:`output` uses.

        Args:
            channels: C of the retrieved map.
            relu: have the ReLU.
            drop_path: probability of dropping the map of a sample in training.
            layer_scale_init: None, or the start of a factor per channel. At 0 the network is bit for bit the plain
                one at step 0 and still learns, which a zero in the norm under a ReLU would not (ours, not the papers').
            norm_layer: builds the normalisation of a number of channels.
        """
        self.norm = norm_layer(channels)
        self.relu = nn.ReLU() if relu else nn.Identity()
        self.layer_scale_init = layer_scale_init
        self.layer_scale = None
        if layer_scale_init is not None:
            if not isinstance(layer_scale_init, (int, float)):
                raise UserError(f'layer_scale_init={layer_scale_init!r} is not a number')
            self.layer_scale = nn.Parameter(torch.full((channels, ), float(layer_scale_init)))
        self.drop_path = make_drop_path(drop_path)

    def output(self, x: Tensor) -> Tensor:
        """``DropPath(scale · ReLU(norm(x)))``, ``(B, C, H, W)`` to the same."""
        x = self.relu(self.norm(x))
        if self.layer_scale is not None:
            x = x * self.layer_scale[:, None, None].to(x.dtype)
        return self.drop_path(x)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None) -> tuple[Tensor, State]:
        """Compute ``(retrieved, state)``; what subclasses implement."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State | None = None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """Retrieve from earlier layers; see the class for the shapes.

        Raises:
            UserError: in training, for a batch of one 1×1 map where a batch norm needs more.
        """
        if self.training and x.numel() == x.shape[1] and any(
                isinstance(module, _BatchNorm) and module.training for module in self.modules()):
            raise UserError(f'a batch norm cannot train on a single 1×1 map (got {tuple(x.shape)}): use a larger '
                            'batch, larger images, or norm_cfg=dict(type=\'GN\', …) in layer_attention')
        if self.with_cp and self.training and torch.is_grad_enabled():
            return checkpointed(self, self.attend, x, state, shortcut)
        return self.attend(x, state, shortcut)


def known_layer_attentions() -> list[str]:
    """Names usable as ``layer_attention=dict(type=…)``."""
    return sorted(LayerAttention._known)


def layer_attention_class(type_: str | type[LayerAttention]) -> type[LayerAttention]:
    """Find a layer attention by its name (with or without the prefix ``mmkcla.``), or pass a class through.

    Raises:
        UserError: if there is none of that name; the known ones are listed.
    """
    if isinstance(type_, type) and issubclass(type_, LayerAttention):
        return type_
    name = str(type_).removeprefix('mmkcla.')
    if name not in LayerAttention._known:
        near = difflib.get_close_matches(name, LayerAttention._known, n=1)
        hint = f' Did you mean {near[0]!r}?' if near else ''
        raise UserError(f'unknown layer_attention type {type_!r}; known are: {", ".join(known_layer_attentions())}.'
                        + hint)
    return LayerAttention._known[name]
