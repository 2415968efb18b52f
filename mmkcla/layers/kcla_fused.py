"""KCLA in few operators: one autograd function per layer that keeps two maps and recomputes the rest.

The same numbers as the plain form in :mod:`.kcla`, which stays the reference. What makes it cheaper:

* γ · z/(z + 1e-3) is one number per head and sample, and f_V a depthwise convolution: their product is one depthwise
  convolution with a kernel per sample, so that no map is multiplied by the gate, forward or backward; the gradients of
  the gate and of f_V are sums over the gradient of these kernels;
* of the maps, only x (which the block's ReLU keeps anyway) and the mean are kept; f_V and the norm are recomputed;
* the gradients of scores, weights and gate are written out, which shares factors and needs few operators.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..errors import UserError
from .common import channel_conv, is_observed, runs_eagerly, score_dtype, without_autocast

aten = torch.ops.aten
_TINY = 1e-30  # a key of length zero has no direction, and no gradient through its length


class Constants(NamedTuple):
    """Numbers of a layer that are not tensors."""

    head_channels: int
    norm_scale: float  # on ‖K‖ in the weights
    max_score: float
    offset: float  # added to z where it divides
    norm_eps: float  # below it a key counts as zero
    training: bool  # of the batch norm
    momentum: float | None
    eps: float


class Parts(NamedTuple):
    """The tensors of a layer."""

    query: Tensor  # (1, 1, k)
    key: Tensor  # (1, 1, k)
    temperature: Tensor  # P, (G,)
    mixing: Tensor | None  # (G, G)
    value: Tensor  # (C, 1, 3, 3)
    weight: Tensor | None  # of the norm; None: its scale is in f_V, and only the bias is left
    bias: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    keep: Tensor | None  # of drop path: 0 or 1/(1 - p) per sample, (B,)
    scale: Tensor | None  # of the layer scale, (C,)


def _parts(tensors: Iterable[Tensor | None]) -> Parts:
    return Parts(*cast('Iterable[Any]', tensors))


class Scores(NamedTuple):
    """What is computed per sample and head, ``(B, G)``, or channel, ``(B, C)``, and needed in the backward pass."""

    pooled: Tensor
    query: Tensor
    key: Tensor
    norm: Tensor
    length: Tensor  # the norm, but at least norm_eps
    score: Tensor
    gamma: Tensor
    raw: Tensor  # P·‖K‖ before it is cut off
    weight: Tensor  # w
    z: Tensor
    share: Tensor | None  # α
    divisor: Tensor  # z + 1e-3
    gate: Tensor


def _scores(x: Tensor, z: Tensor | None, parts: Parts, numbers: Constants) -> Scores:
    pooled = x.mean(dim=(2, 3), dtype=score_dtype(x))
    batch, d = len(x), numbers.head_channels
    query, key = channel_conv(pooled, parts.query), channel_conv(pooled, parts.key)
    heads = key.view(batch, -1, d)
    norm = torch.linalg.vector_norm(heads, dim=-1)
    dot = torch.bmm(query.reshape(-1, 1, d), key.reshape(-1, d, 1)).view_as(norm)
    length = norm.clamp(min=numbers.norm_eps)
    score = dot / length
    gamma = (score if parts.mixing is None else score @ parts.mixing.t()).sigmoid()
    raw = parts.temperature * norm
    if numbers.norm_scale != 1:
        raw = raw * numbers.norm_scale
    weight = raw.clamp(max=numbers.max_score).exp_()
    new = weight if z is None else z + weight
    share = None if z is None else weight / new
    divisor = new + numbers.offset
    gate = torch.addcdiv(gamma, gamma, divisor, value=-numbers.offset)
    return Scores(pooled, query, key, norm, length, score, gamma, raw, weight, new, share, divisor, gate)


def _gated_kernel(gate: Tensor, value: Tensor, numbers: Constants, dtype: torch.dtype) -> Tensor:
    """f_V's kernels times the gate: ``(B·C, 1, 3, 3)``."""
    kernel = gate[:, :, None, None] * value.view(1, -1, numbers.head_channels, 9)
    return kernel.to(dtype).view(-1, 1, 3, 3)


def _one_sample(x: Tensor) -> Tensor:
    """``(B, C, H, W) -> (1, B·C, H, W)``."""
    return x.view(1, -1, *x.shape[2:])


def _per_head(x: Tensor, numbers: Constants) -> Tensor:
    """``(B, C, H, W) -> (B, G, d·H·W)``."""
    return x.view(len(x), x.shape[1] // numbers.head_channels, -1)


def _value(mean: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is not None:
        bias = bias.to(kernel.dtype).repeat(len(mean)) if len(mean) > 1 else bias.to(kernel.dtype)
    return torch.conv2d(_one_sample(mean), kernel, bias, padding=1, groups=len(kernel)).view_as(mean)


def _norm(u: Tensor, parts: Parts, numbers: Constants, update: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The batch norm, the batch's mean and inverse deviation; ``update`` the running ones."""
    running = (parts.running_mean, parts.running_var) if update or not numbers.training else (None, None)
    return aten.native_batch_norm(u, parts.weight, parts.bias, *running, numbers.training,
                                  numbers.momentum, numbers.eps)


def _fold_norm(parts: Parts, numbers: Constants) -> Parts:
    """Let f_V and the bias take a norm in evaluation: no pass over the map, forward or backward, and no statistics."""
    assert parts.weight is not None and parts.running_mean is not None and parts.running_var is not None
    scale = parts.weight * (parts.running_var + numbers.eps).rsqrt()
    bias = torch.addcmul(parts.bias, parts.running_mean, scale, value=-1)
    value = parts.value * scale.to(parts.value.dtype)[:, None, None, None]
    return parts._replace(value=value, weight=None, bias=bias, running_mean=None, running_var=None)


def _mean(x: Tensor, before: Tensor, share: Tensor | None, numbers: Constants) -> Tensor:
    assert share is not None
    share = share.to(x.dtype)[:, :, None]
    return torch.lerp(_per_head(before, numbers), _per_head(x, numbers), share).view_as(x)


def _retrieve(mean: Tensor, kernel: Tensor, parts: Parts, numbers: Constants) -> Tensor:
    if parts.weight is None:
        out = _value(mean, kernel, parts.bias).relu_()
    else:
        out = _norm(_value(mean, kernel), parts, numbers, update=True)[0].relu_()
    factor = _factor(parts, out.dtype)
    return out if factor is None else out.mul_(factor)


def _factor(parts: Parts, dtype: torch.dtype) -> Tensor | None:
    """Of drop path and layer scale together, ``(B or 1, C or 1, 1, 1)``."""
    if parts.keep is None:
        return None if parts.scale is None else parts.scale.to(dtype)[:, None, None]
    keep = parts.keep[:, None] if parts.scale is None else parts.keep[:, None] * parts.scale
    return keep.to(dtype)[:, :, None, None]


class _Layer(torch.autograd.Function):
    """``retrieved, mean, z`` from ``x``, the mean and z before, and the tensors of :class:`Parts`."""

    @staticmethod
    def forward(ctx: Any, numbers: Constants, x: Tensor, before: Tensor | None, z: Tensor | None,
                *tensors: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        parts = _parts(tensors)
        scores = _scores(x, z, parts, numbers)
        mean = x if before is None else _mean(x, before, scores.share, numbers)
        retrieved = _retrieve(mean, _gated_kernel(scores.gate, parts.value, numbers, x.dtype), parts, numbers)
        ctx.numbers = numbers
        ctx.set_materialize_grads(False)
        if numbers.training:  # not needed, and written to by the next forward
            parts = parts._replace(running_mean=None, running_var=None)
        ctx.save_for_backward(x, before, None if before is None else mean, *parts, *scores)
        return retrieved, None if before is None else mean, scores.z

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_mean: Tensor | None, grad_z: Tensor | None) -> tuple:
        if torch.is_grad_enabled():  # what once_differentiable refuses only where it sees it
            raise UserError('the gradients of KCLA cannot be differentiated again (create_graph=True) in its fused '
                            'form; set fused=False in layer_attention')
        numbers: Constants = ctx.numbers
        x, before, mean, *tensors = ctx.saved_tensors
        parts, scores = _parts(tensors[:len(Parts._fields)]), Scores(*tensors[len(Parts._fields):])
        mean = x if before is None else mean
        grad = x.new_zeros(()).expand_as(x) if grad is None else grad
        grad_mean_own, grad_kernel, grad_weight, grad_bias, grad_scale = _output_grads(
            grad, mean, _gated_kernel(scores.gate, parts.value, numbers, x.dtype), parts, numbers)

        # the kernel's gradient (B, G, d·9) holds those of the gate and of f_V
        grad_kernel = grad_kernel.view(len(x), -1, numbers.head_channels * 9).to(scores.gate.dtype).transpose(0, 1)
        grad_gate = torch.bmm(grad_kernel, parts.value.view(len(grad_kernel), -1, 1).to(grad_kernel.dtype))[:, :, 0].t()
        grad_value = torch.bmm(scores.gate.t()[:, None], grad_kernel).view_as(parts.value).to(parts.value.dtype)

        grad_mean = grad_mean_own if grad_mean is None else grad_mean_own.add_(grad_mean)
        grad_share = None
        if before is not None:
            by_map = _products(grad_mean, x - before)
            grad_share = by_map.view(*scores.gate.shape, -1).sum(-1).to(scores.gate.dtype)
        small = _score_grads(grad_gate, grad_share, grad_z, scores, parts, numbers, ctx.needs_input_grad[6])
        grad_pooled = (small[0] / x[0, 0].numel()).to(x.dtype)[:, :, None, None]
        if before is None:
            grad_x, grad_before = grad_mean.add_(grad_pooled), None
        else:
            assert scores.share is not None
            share = scores.share.to(x.dtype)[:, :, None]
            flow, d = _per_head(grad_mean, numbers), numbers.head_channels
            by_head = (len(x), -1, d, x[0, 0].numel())
            grad_x = torch.addcmul(grad_pooled.view(len(x), -1, d, 1), flow.view(by_head), share[:, :, None])
            grad_x, grad_before = grad_x.view_as(x), flow.mul_(1 - share).view_as(x)
        return (None, grad_x, grad_before, small[1], *small[2:], grad_value, grad_weight, grad_bias, None, None, None,
                grad_scale)


def _output_grads(grad: Tensor, mean: Tensor, kernel: Tensor, parts: Parts,
                  numbers: Constants) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Of the mean, the gated kernel, the norm's weight and bias, and the layer scale.

    f_V and the norm are computed again.
    """
    folded = parts.weight is None
    value = out = _value(mean, kernel, parts.bias if folded else None)
    statistics: Sequence[Tensor] = ()
    if not folded:
        out, *statistics = _norm(value, parts, numbers, update=False)
    grad_scale = None if parts.scale is None else _scale_grad(grad, out.relu_(), parts)
    factor = _factor(parts, grad.dtype)
    if factor is not None:
        grad = grad * factor
    grad = aten.threshold_backward(grad, out, 0)
    del out
    grad_weight = grad_bias = None
    if not folded:
        grad, grad_weight, grad_bias = aten.native_batch_norm_backward(
            grad, value, parts.weight, parts.running_mean, parts.running_var, *statistics, numbers.training,
            numbers.eps, [True, True, True])
    del value
    grad_mean, grad_kernel, by_map = aten.convolution_backward(
        _one_sample(grad), _one_sample(mean), kernel, [len(kernel)] if folded else None, [1, 1], [1, 1], [1, 1], False,
        [0, 0], len(kernel), [True, True, folded])
    if folded:
        grad_bias = by_map.view(mean.shape[:2]).to(parts.bias.dtype).sum(0)
    return grad_mean.view_as(mean), grad_kernel, grad_weight, grad_bias, grad_scale


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Σ a·b over each map, ``(B·C,)``.

    The gradient of the scale of a norm with mean 0 and variance 1 is this sum: one pass that writes no map, and adds in
    float64 on CPUs. A batched matrix product takes up to 14 times as long there.
    """
    zeros = torch.zeros(a.shape[0] * a.shape[1], dtype=score_dtype(a), device=a.device)
    return aten.native_batch_norm_backward(_one_sample(a), _one_sample(b), zeros, zeros, zeros, None, None, False, 1.,
                                           [False, True, False])[1]


def _scale_grad(grad: Tensor, out: Tensor, parts: Parts) -> Tensor:
    assert parts.scale is not None
    by_map = _products(grad.contiguous(), out).view(out.shape[:2]).to(parts.scale.dtype)
    return (by_map if parts.keep is None else by_map * parts.keep[:, None]).sum(0)


def _score_grads(grad_gate: Tensor, grad_share: Tensor | None, grad_z: Tensor | None, scores: Scores, parts: Parts,
                 numbers: Constants, learns_temperature: bool) -> tuple[Tensor | None, ...]:
    """Of the pooled map, z before, and the first four of :class:`Parts`."""
    gated = grad_gate * scores.gate
    grad_logit = torch.addcmul(gated, gated, scores.gamma, value=-1)
    # d(z/(z + ε))/dz = ε/(z + ε)²
    grad_z = torch.zeros_like(gated) if grad_z is None else grad_z
    grad_new = torch.addcdiv(grad_z, gated, scores.z * scores.divisor, value=numbers.offset)
    grad_weight, grad_before = grad_new, None
    if grad_share is not None:
        assert scores.share is not None
        direct = grad_share / scores.z
        grad_before = torch.addcmul(grad_new, direct, scores.share, value=-1)
        grad_weight = grad_before + direct
    grad_weight = grad_weight * scores.weight
    grad_weight = aten.hardtanh_backward(grad_weight, scores.raw, -torch.inf, numbers.max_score)
    if numbers.norm_scale != 1:
        grad_weight = grad_weight * numbers.norm_scale
    grad_norm = grad_weight * parts.temperature
    grad_temperature = (grad_weight * scores.norm).sum(0) if learns_temperature else None

    grad_score, grad_mixing = grad_logit, None
    if parts.mixing is not None:
        grad_score, grad_mixing = grad_logit @ parts.mixing, grad_logit.t() @ scores.score
    grad_dot = grad_score / scores.length
    grad_norm = grad_norm - aten.threshold_backward(grad_dot * scores.score, scores.norm, numbers.norm_eps)

    query, key = (t.view(*scores.gate.shape, -1) for t in (scores.query, scores.key))
    along = grad_norm / scores.norm.clamp(min=_TINY)
    grad_dot = grad_dot[:, :, None]
    grad_key = torch.addcmul(along[:, :, None] * key, grad_dot, query)
    by_query, grad_query = _channel_conv_grads(grad_dot * key, scores.pooled, parts.query)
    by_key, grad_key_weight = _channel_conv_grads(grad_key, scores.pooled, parts.key)
    return by_query.add_(by_key)[:, 0], grad_before, grad_query, grad_key_weight, grad_temperature, grad_mixing


def _channel_conv_grads(grad: Tensor, pooled: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    size = weight.shape[-1]
    half = size // 2
    if pooled.is_cpu:  # oneDNN takes up to 30 times as long as this for a batch
        by_pooled, by_weight, _ = aten._slow_conv2d_backward(
            grad.reshape(len(pooled), 1, 1, -1), pooled[:, None, None], weight[:, :, None], [1, size], [1, 1],
            [0, half], [True, True, False])
        return by_pooled[:, 0], by_weight[:, :, 0]
    by_pooled, by_weight, _ = aten.convolution_backward(
        grad.reshape(len(pooled), 1, -1), pooled[:, None], weight, None, [1], [half], [1], False, [0], 1,
        [True, True, False])
    return by_pooled, by_weight


def run(x: Tensor, before: Tensor | None, z: Tensor | None, parts: Parts,
        numbers: Constants) -> tuple[Tensor, Tensor, Tensor]:
    """``retrieved``, the new mean and the new z; gradients once, not twice differentiable."""
    dtype = score_dtype(x)
    parts = _parts(t if name in Parts._fields[5:] or t is None else t.to(dtype)
                   for name, t in zip(Parts._fields, parts, strict=True))
    if before is not None:
        before = before.to(x.dtype)
    with without_autocast(x):
        if torch.is_grad_enabled():
            if parts.weight is not None and not numbers.training:
                parts = _fold_norm(parts, numbers)
            retrieved, mean, z = _Layer.apply(numbers, x, before, z, *parts)
            return retrieved, x if mean is None else mean, z
        scores = _scores(x, z, parts, numbers)
        mean = x if before is None else _mean(x, before, scores.share, numbers)
        kernel = _gated_kernel(scores.gate, parts.value, numbers, x.dtype)
        return _retrieve(mean, kernel, parts, numbers), mean, scores.z


def fits(x: Any, modules: Sequence[nn.Module]) -> bool:
    """Whether the function may stand in for these modules now: nothing else observes, replaces or records them."""
    return runs_eagerly(x) and x.is_contiguous() and x.numel() > 0 and not is_observed(modules)
