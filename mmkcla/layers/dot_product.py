"""Dot-product attention over positions (non-local), what Efficient Attention is compared with."""
from __future__ import annotations

import torch
from torch import Tensor

from .spatial_attention import SpatialAttention, softmax


class DotProductAttention2d(SpatialAttention):
    r"""Attention over positions by an explicit n×n matrix, n = H·W (arXiv 1812.01243, eq. 2; non-local networks)::

        out = V ρ(Kᵀ Q)          x + reprojection(out)

    ``'softmax'``: ρ over the positions of the keys. ``'scaling'``: ρ(Y) = Y/n. Time and memory grow with n².

    The arguments are those of :class:`SpatialAttention`.
    """

    def mix(self, keys: Tensor, queries: Tensor, values: Tensor) -> Tensor:
        """See :class:`SpatialAttention`; the values are mixed by the matrix."""
        if self.normalization == 'softmax':
            shares = softmax(torch.matmul(keys.transpose(-1, -2), queries), -2)
        else:
            shares = torch.matmul(keys.transpose(-1, -2), queries / keys.shape[-1])
        return torch.matmul(values, shares)
