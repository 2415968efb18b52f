"""The common interface of all layer attentions."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
import torch.fx
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import UserError
from ..utils.text import did_you_mean
from .common import ChannelAffine, affine_of, checkpointed, in_type_of, make_drop_path
from .inspection import Call, Shares
from .record import Recorded, parameters_of

State = tuple[Tensor, ...]
# optional methods for heads -> how they are defined
HEAD_METHODS = {'head_gates': 'head_gates(call)', 'head_temperatures': 'head_temperatures(call)',
                'head_mixing_matrix': 'head_mixing_matrix()'}
SET_BY_NETWORK = ('channels', 'depth', 'carry_channels', 'carry_stride')  # arguments of build_stage


class LayerAttention(Recorded, nn.Module):
    """Base class of layer attentions: retrieve information from the maps of earlier layers for the current map.

    Configs refer to a subclass by its class name: ``layer_attention=dict(type='KCLA', …)``; subclasses with a name
    that starts with an underscore are excluded. The call is ``retrieved, state = layer(x, state, shortcut)``:

    * ``x``: the block's output, ``(B, C, H, W)``;
    * ``state``: None at the start of the network, otherwise the state returned by the previous layer: a plain tuple of
      tensors, so that it works with torch.compile, export and checkpointing;
    * ``shortcut``: the block's identity branch after its downsample, shaped like ``x``; given only to methods whose
      ``needs_shortcut`` is True;
    * ``retrieved``: ``(B, C, H, W)``; the next block's input is ``x + retrieved``.

    A method implements :meth:`attend`. Its constructor takes the channels first, its own options after them, and
    passes the rest on: ``def __init__(self, channels, head_channels=32, **options): super().__init__(**options)``.
    ``docs/own-layer-attention.md`` has an example.

    Args:
        drop_path: probability of dropping the retrieved map of a sample in training.
        layer_scale_init: None, or the initial value of a per-channel factor on the retrieved map. At 0 the network is
            bit-identical to the plain one at step 0 and still learns, unlike with a zero-initialised norm before a ReLU
            (our addition, not in the papers).
        with_cp: recompute this layer's forward in the backward pass instead of keeping its activations
            (non-reentrant checkpointing). The block's own ``with_cp`` does not cover the attention.
        norm_layer: builds the normalisation layer for a number of channels.

    Raises:
        UserError: for values out of range; when a subclass is defined, if its name is already taken.
    """

    needs_shortcut: ClassVar[bool] = False
    own_map_alone: ClassVar[bool] = False  # retrieves nothing of earlier layers, so their keys and shares do not exist
    cifar_options: ClassVar[dict[str, Any]] = {}  # of the papers' CIFAR experiments
    not_recorded = frozenset({*SET_BY_NETWORK, 'drop_path', 'layer_scale_init', 'with_cp', 'norm_layer'})
    _known: ClassVar[dict[str, type[LayerAttention]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = cls.__name__
        if name.startswith('_'):
            return
        other = LayerAttention._known.get(name, cls)
        if _path(other) != _path(cls):  # the same path comes again with a reload, or a notebook cell run again
            raise UserError(f'class {_path(cls)}: the name {name!r} is already used by {_path(other)}, and configs '
                            'find layer attentions by name; choose another name')
        LayerAttention._known[name] = cls

    def __init__(self, *, drop_path: float = 0.2, layer_scale_init: float | None = None, with_cp: bool = False,
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        if not (layer_scale_init is None or isinstance(layer_scale_init, (int, float))):
            raise UserError(f'layer_scale_init={layer_scale_init!r} is not a number')
        self.with_cp = with_cp
        # The first layer of a stage; where it has no carry, it forgets what the previous stage left.
        self.opens_stage = False
        self.norm_layer = norm_layer
        self.layer_scale_init = layer_scale_init
        self.layer_scale: nn.Parameter | None = None
        self.drop_path = make_drop_path(drop_path)

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options of :meth:`build_stage` with their defaults (``inspect.Parameter.empty`` for required ones),
        without those that the network sets (:data:`SET_BY_NETWORK`)."""
        found = parameters_of(cls, ('build_stage', '__init__'), last=LayerAttention)
        return {name: default for name, default in found.items() if name not in SET_BY_NETWORK}

    @classmethod
    def unknown_option(cls, name: str) -> UserError:
        """The error for an unknown option; it lists the known ones."""
        if name == 'norm_layer':
            return UserError(f'layer_attention {cls.__name__} does not take norm_layer, which every network sets: let '
                             f'{_path(cls)}.__init__ take **options and pass them to LayerAttention.__init__')
        # in a config the norm is given by norm_cfg
        options = ['norm_cfg' if option == 'norm_layer' else option for option in cls.options()]
        return UserError(f'layer_attention {cls.__name__} does not take {name!r}; its options are '
                         f'{", ".join(options)} (see {_path(cls)}){did_you_mean(name, options)}')

    @classmethod
    def build_stage(cls, channels: int, depth: int, carry_channels: int | None = None, carry_stride: int = 1,
                    **options: Any) -> nn.ModuleList:
        """Build the layers of one stage.

        Args:
            channels: channels C of the stage's maps.
            depth: number of blocks, and so of layers.
            carry_channels: channels of the previous stage, None for the network's first stage.
            carry_stride: the stage's true stride (1 in a dilated stage).
            options: options of the method.

        Returns:
            ``depth`` layers. In the base class they are independent and the stage starts without a state; methods that
            carry over from the previous stage, or share modules within a stage, override this.
        """
        build: Callable[..., LayerAttention] = cls  # subclasses take the channels, this class does not
        layers = [build(channels, **options) for _ in range(depth)]
        layers[0].opens_stage = True
        return nn.ModuleList(layers)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """The submodules, norms first.

        mmcv's ``fuse_conv_bn`` folds a batch norm into the convolution listed before it. Between the value convolution
        and the norm stands the gate, which it cannot see; here it finds no convolution before the norm.
        """
        children = list(super().named_children())
        yield from sorted(children, key=lambda child: not isinstance(child[1], _BatchNorm))

    def reset_parameters(self) -> None:
        """Initialise all weights of the method (mmengine's rules for Conv2d etc. do not apply to it)."""
        for module in self.modules():
            if module is not self and (reset := getattr(module, 'reset_parameters', None)):
                reset()
        self.reset_own_parameters()

    def reset_own_parameters(self) -> None:
        """Initialise the layer's own parameters (not those of its submodules); subclasses with parameters extend it."""
        if self.layer_scale is not None and self.layer_scale_init is not None:
            nn.init.constant_(self.layer_scale, self.layer_scale_init)

    def build_output(self, channels: int, relu: bool = True, norm: bool = True) -> None:
        """Build the modules of :meth:`output`; call it last in a constructor.

        Args:
            channels: C of the retrieved map.
            relu: use the ReLU.
            norm: use the norm.
        """
        self.norm = self.norm_layer(channels) if norm else nn.Identity()
        self.relu = nn.ReLU() if relu else nn.Identity()
        if self.layer_scale_init is not None:
            self.layer_scale = nn.Parameter(torch.full((channels, ), float(self.layer_scale_init)))

    def output(self, x: Tensor) -> Tensor:
        """``DropPath(scale · ReLU(norm(x)))``, ``(B, C, H, W)`` to the same."""
        x = self.relu(self.norm(x))
        if self.layer_scale is not None:
            x = x * in_type_of(self.layer_scale, x)[:, None, None]
        return self.drop_path(x)

    @torch.no_grad()
    def switch_to_deploy(self) -> None:
        """Fold the batch norm of :meth:`output` and drop what only training needs; for inference alone."""
        norm = getattr(self, 'norm', None)
        if isinstance(norm, _BatchNorm):
            self.norm = self.folded_norm(*affine_of(norm))
        self.drop_path = nn.Identity()

    def folded_norm(self, scale: Tensor, shift: Tensor) -> nn.Module:
        """What takes the place of a batch norm in evaluation; subclasses may fold the scale, ``(C,)``, elsewhere."""
        return ChannelAffine(scale, shift)

    def attend(self, x: Tensor, state: State | None, shortcut: Tensor | None) -> tuple[Tensor, State]:
        """Compute ``(retrieved, state)``; implemented by subclasses."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State | None = None, shortcut: Tensor | None = None) -> tuple[Tensor, State]:
        """Retrieve from earlier layers; see the class for the shapes.

        Raises:
            UserError: in training, for a batch of one 1×1 map where a batch norm needs more.
        """
        if self.training and any(isinstance(module, _BatchNorm) and module.training for module in self.modules()):
            x = _more_than_one_value(x)
        # symbolic tracing passes proxies, which cannot be checkpointed
        if self.with_cp and self.training and torch.is_grad_enabled() and isinstance(x, Tensor):
            return checkpointed(self, self.attend, x, state, shortcut)
        return self.attend(x, state, shortcut)

    # Methods for the analyses. All are optional: an analysis reports it if a method is not defined. ---------------

    def stage_keys(self, calls: Sequence[Call]) -> Tensor:
        """The keys of all layers of a stage as seen by its last layer (this one), per head: ``(D, B, G, d)``.

        Args:
            calls: the calls of the D layers of the stage.

        Raises:
            UserError: the method has no keys of layers.
        """
        raise self._not_defined('stage_keys(calls)', 'has no key of a layer')

    def layer_shares(self, calls: Sequence[Call], position: int) -> Shares:
        """The shares of the layers in the map retrieved by this layer, ``calls[position]``.

        Args:
            calls: the calls of the D layers of the stage.
            position: index of this layer, from 0.

        Raises:
            UserError: the method has no shares of layers.
        """
        raise self._not_defined('layer_shares(calls, position)', 'gives earlier layers no share')

    def head_gates(self, call: Call) -> Tensor | None:
        """The gate in (0, 1) of each head, ``(B, G)``; None without gates. See also :meth:`not_known_of_heads`."""

    def head_temperatures(self, call: Call) -> Tensor | None:
        """The factor on the scores of each head, ``(B, G)``; None if it is a common constant."""

    def head_mixing_matrix(self) -> Tensor | None:
        """The matrix that mixes the scores of the heads, ``(G, G)``: input heads in columns, output heads in rows; None
        without mixing."""

    def not_known_of_heads(self) -> list[str]:
        """The methods for heads of which nothing is known: they return None because the class does not define them.

        For a computation (``attend``) of this package, None says that there are none; for one of others it does not.
        """
        kind = next(kind for kind in type(self).__mro__ if 'attend' in vars(kind))
        if kind.__module__.startswith(f'{__name__.partition(".")[0]}.'):
            return []
        return [call for name, call in HEAD_METHODS.items()
                if getattr(type(self), name) is getattr(LayerAttention, name)]

    def _not_defined(self, method: str, lack: str) -> UserError:
        name = type(self).__name__
        if self.own_map_alone:
            return UserError(f'{name} {lack}: it looks at its own map alone')
        return UserError(f'{name} does not define {method}, which this analysis calls; add it to '
                         f'{_path(type(self))} as docs/own-layer-attention.md shows')


@torch.fx.wrap  # symbolic tracing records the check instead of taking the branch
def _more_than_one_value(x: Tensor) -> Tensor:
    if x.numel() == x.shape[1]:
        raise UserError(f'a batch norm cannot train on a single 1×1 map (got {tuple(x.shape)}): use a larger '
                        'batch, larger images, or norm_cfg=dict(type=\'GN\', …) in layer_attention')
    return x


def _path(kind: type) -> str:
    return f'{kind.__module__}.{kind.__qualname__}'


def known_layer_attentions() -> list[str]:
    """Names usable as ``layer_attention=dict(type=…)``."""
    return sorted(LayerAttention._known)


def layer_attention_class(type_: str | type[LayerAttention] | None) -> type[LayerAttention]:
    """Find a layer attention by name (with or without the prefix ``mmkcla.``); a class is returned unchanged.

    Raises:
        UserError: if there is none of that name, or no name; the known ones are listed.
    """
    if type_ is None:
        raise UserError(f'layer_attention has no type; known are: {", ".join(known_layer_attentions())}')
    if isinstance(type_, type) and issubclass(type_, LayerAttention):
        return type_
    name = str(type_).removeprefix('mmkcla.')
    if name not in LayerAttention._known:
        raise UserError(f'unknown layer_attention type {type_!r}; known are: {", ".join(known_layer_attentions())}'
                        + did_you_mean(name, LayerAttention._known))
    return LayerAttention._known[name]
