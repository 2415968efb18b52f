"""Count multiply-accumulates while a model runs, and list the uncounted operators."""
from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

aten = torch.ops.aten
# one multiply-accumulate per output element
ELEMENTWISE = (aten.mul, aten.mul_, aten.div, aten.div_, aten.lerp, aten.lerp_, aten.addcmul, aten.addcmul_,
               aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_no_training,
               aten.cudnn_batch_norm, aten.miopen_batch_norm)
# operators that move or create tensors without arithmetic
_NO_WORK = {
    'alias', 'as_strided', 'clone', 'copy_', '_to_copy', 'contiguous', 'detach', 'diagonal', 'expand', 'flip',
    'lift_fresh', 'permute', 'repeat', 'reshape', '_reshape_alias', 'select', 'set_', 'slice', 'split',
    'split_with_sizes', 'squeeze', 'squeeze_', 't', 'transpose', 'unbind', 'unfold', 'unsqueeze', 'unsqueeze_',
    'view', '_unsafe_view', 'cat', 'stack', 'constant_pad_nd', 'pixel_shuffle', 'channel_shuffle', 'arange',
    'empty', 'empty_like', 'empty_strided', 'fill_', 'full', 'full_like', 'new_empty', 'new_empty_strided',
    'new_full', 'new_ones', 'new_zeros', 'ones', 'ones_like', 'resize_', 'scalar_tensor', 'zero_', 'zeros',
    'zeros_like', 'gather', 'index', 'index_put_', 'index_select', 'item', '_local_scalar_dense', 'nonzero',
    '_unsafe_index', 'view_as_real', 'view_as_complex', 'complex', '_conj'}
# functions, sums and selections by definition without multiply-accumulates that torch does not tag as point-wise
_NO_MACS = {
    '_softmax', '_log_softmax', '_safe_softmax', 'elu', 'elu_', 'sum', 'mean', 'amax', 'amin', 'max', 'min', 'aminmax',
    'argmax', 'argmin', 'any', 'all', 'prod', 'logsumexp', 'cumsum', 'cummax', 'cummin', 'logcumsumexp', 'topk', 'sort',
    'var', 'std', 'var_mean', 'std_mean', 'linalg_vector_norm', 'norm', 'max_pool2d_with_indices', 'max_pool2d',
    'avg_pool2d', '_adaptive_avg_pool2d', 'adaptive_max_pool2d', 'native_dropout', 'bernoulli', 'bernoulli_', 'rand',
    'randn', 'rand_like', 'randn_like', 'randint', 'randperm', 'uniform_', 'normal_', 'embedding', 'roll', 'scatter',
    'scatter_', 'scatter_add', 'scatter_add_', 'index_add', 'index_add_', 'upsample_nearest2d', 'masked_fill',
    'masked_fill_', 'where', 'tril', 'triu', 'bincount', 'searchsorted', 'bucketize', 'unique_dim', '_unique2', 'equal',
    'torchvision::nms', 'torchvision::roi_align', 'torchvision::roi_pool'}
RULE_HINT = 'register one with torch.utils.flop_counter.register_flop_formula in the module of the class'


class MacCounter(TorchDispatchMode):
    """Context manager that counts the operations run by torch, forward or backward.

    ``macs``: multiply-accumulates of convolutions and matrix products, by torch's formulas (half of its FLOPs, without
    bias additions). ``elementwise``: one per output element of multiplications, divisions, interpolations and batch
    norms, including the addition of the same multiply-accumulate. The mixing of maps by layer attentions is of this
    kind. Plain additions, sums, comparisons, exponentials and other functions are not counted in either; ``calls`` and
    ``elements`` have their calls and output elements by operator. ``without_rule``: of these, the operators that may
    hold multiply-accumulates for which there is no rule, such as custom operators, Fourier transforms or layer norms;
    the count is too low where there are any. Views, copies and allocations are ignored.

    Args:
        root: also count the MACs per module: ``by_module`` has them by the names of ``root.named_modules()`` whose
            forward was called, including submodules.
    """

    def __init__(self, root: nn.Module | None = None) -> None:
        super().__init__()
        self.macs = 0
        self.elementwise = 0
        self.by_module: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.elements: Counter[str] = Counter()
        self.without_rule: set[str] = set()
        self._root = root
        self._tracker: ModuleTracker | None = None
        self._depth = 0  # the context is re-entered while a composite operator is decomposed

    def __enter__(self) -> MacCounter:
        if self._root is not None and self._tracker is None:
            self._tracker = ModuleTracker().__enter__()
        self._depth += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._depth -= 1
        if self._depth == 0 and self._tracker is not None:
            self._tracker.__exit__(*error)
            self._tracker = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in flop_registry:  # in inference mode composite operators arrive undecomposed
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if packet in flop_registry:
            macs = flop_registry[packet](*args, **kwargs, out_val=out) // 2
            self.macs += macs
            if self._tracker is not None:
                prefix = type(self._root).__name__ + '.'
                for name in self._tracker.parents:
                    if name.startswith(prefix):
                        self.by_module[name.removeprefix(prefix)] += macs
            return out
        namespace, _, name = func._schema.name.partition('::')
        if namespace == 'aten' and name in _NO_WORK:
            return out
        size = max((leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor)), default=0)
        if packet in ELEMENTWISE:
            self.elementwise += size
        if size and (packet not in ELEMENTWISE or self._root is not None):
            label = name if namespace == 'aten' else f'{namespace}::{name}'
            self.calls[label] += 1
            self.elements[label] += size
            if packet not in ELEMENTWISE and label not in _NO_MACS and torch.Tag.pointwise not in func.tags:
                self.without_rule.add(label)
        return out

    def part(self, name: str) -> int:
        """MACs of the module ``name``. If it was not called itself, the sum of its topmost submodules that were."""
        if name in self.by_module:
            return self.by_module[name]
        below = [known for known in self.by_module if known.startswith(name + '.')]
        return sum(self.by_module[known] for known in below
                   if not any(known.startswith(other + '.') for other in below))
