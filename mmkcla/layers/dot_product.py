"""Dot-product attention over positions (non-local), what Efficient Attention is compared with."""
from __future__ import annotations

import torch
from torch import Tensor

from .spatial_attention import SpatialAttention, softmax


class DotProductAttention2d(SpatialAttention):
    r"""Attention over positions by an explicit n×n matrix, n = H·W (arXiv 1812.01243, eq. 2; non-local networks)::

        out = V ρ(Qᵀ K)ᵀ          x + reprojection(out)

    ``'softmax'``: ρ over the positions of the keys. ``'scaling'``: ρ(Y) = Y/n. Time and memory grow with n².

    The arguments are those of :class:`SpatialAttention`.
    """

    def mix(self, keys: Tensor, queries: Tensor, values: Tensor) -> Tensor:
        """See :class:`SpatialAttention`; the values are mixed by the matrix."""
        scores = torch.matmul(queries.transpose(-1, -2), keys)  # a query a row, over which softmax is fastest
        shares = softmax(scores, -1) if self.normalization == 'softmax' else scores / keys.shape[-1]
        return torch.matmul(shares, values.transpose(-1, -2)).transpose(-1, -2)
