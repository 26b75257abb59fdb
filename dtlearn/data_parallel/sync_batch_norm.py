"""Batch normalisation over the batch of all ranks, not over each rank's part of it.

`nn.BatchNorm` normalises with the mean and variance of what it sees. Under data parallelism that is the local batch:
the function that is trained depends on how the batch is split, and with a few samples per rank its statistics are
poor. Here the ranks exchange statistics, so that any split, uneven and empty parts included, gives what one process
gives on the whole batch. `nn.SyncBatchNorm` does the same on GPUs only: it refuses a tensor on the CPU.

    B  samples of this rank (ranks may differ)      C  channels      N  ranks      n  values per channel, all ranks

**Forward.** Each rank computes count, mean and M2 = sum (x - mean)^2 per channel, and all ranks gather those of all.
`combine_moments` puts them together. Adding up sum x and sum x^2 instead, in one all-reduce, would send fewer bytes for
large N, but E[x^2] - E[x]^2 loses all digits when the mean is large against the deviation (in float32 from a ratio of
about 4000). M2 are not summands: they need the means that they belong to, so they are gathered. Every rank then
combines the same numbers in the same order, and all have the same bits.

**Backward.** With xhat = (x - mean) / sqrt(var + eps) and y = weight xhat + bias, the mean and the variance depend on
every rank's x, so each rank needs the sums of dy and of dy (x - mean) over all ranks:

    dx = weight / sqrt(var + eps) * (dy - sum dy / n - (x - mean) / (var + eps) * sum(dy (x - mean)) / n)

The gradients of weight and bias stay sums over the local samples: data parallelism averages them, as all others.

Reference: Ioffe & Szegedy 1502.03167 (batch norm); Chan, Golub & LeVeque 1979 (combining moments).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_LAZY = (nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d)


def combine_moments(
    counts: torch.Tensor, means: torch.Tensor, m2s: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Count, mean and M2 of a union from those of its parts (Chan et al.).

        n = sum n_r     mean = sum n_r mean_r / n     M2 = sum M2_r + sum n_r (mean_r - mean)^2

    All summands of M2 are positive and of its own size: nothing cancels.

    Args:
        counts: (N,). A part with count 0 adds nothing; its mean and M2 must be finite.
        means, m2s: (N, C).

    Returns:
        n, (); mean and M2, (C,).
    """
    total = counts.sum()
    shares = (counts / total).unsqueeze(1)  # (N, 1)
    mean = (shares * means).sum(0)  # (C,)
    m2 = m2s.sum(0) + (counts.unsqueeze(1) * (means - mean).square()).sum(0)
    return total, mean, m2


def gather_moments(
    x: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Count, mean and M2 of each channel over all ranks.

    Communication: one all-gather over `group`: each rank hands in 2C + 1 numbers and gets N times that.
    Memory: (N + 1)(2C + 1) numbers, and a few of size C.

    Args:
        x: (B, C, ...). B may be 0.

    Returns:
        n, (); mean and M2, (C,). In float32, or float64 if x is.
    """
    dims, channels = [d for d in range(x.dim()) if d != 1], x.shape[1]
    count = x.numel() // channels
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    mine = torch.zeros(2 * channels + 1, dtype=exact, device=x.device)  # of an empty batch: zeros, but it takes part
    if count:
        var, mean = torch.var_mean(x.to(exact), dims, correction=0)  # (C,)
        mine = torch.cat([mean, var * count, mine.new_tensor([count])])
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine, group=group)
    everyone = torch.stack(parts)  # (N, 2C + 1)
    return combine_moments(everyone[:, -1], everyone[:, :channels], everyone[:, channels:-1])


class _Normalize(torch.autograd.Function):
    """y = weight (x - mean) / sqrt(var + eps) + bias, where mean and var come from the x of all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        count: torch.Tensor,
        mean: torch.Tensor,
        m2: torch.Tensor,
        eps: float,
        group: dist.ProcessGroup | None,
    ) -> torch.Tensor:
        inv_std = (m2 / count + eps).rsqrt()  # (C,)
        ctx.save_for_backward(x, weight, mean, inv_std, count)
        ctx.group = group
        y = x - _as(mean, x)
        y *= _as(inv_std if weight is None else inv_std * weight, x)
        if bias is not None:
            y += _as(bias, x)
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, inv_std, count = ctx.saved_tensors
        dims = [d for d in range(x.dim()) if d != 1]
        centred = x - _as(mean, x)  # (B, C, ...)
        sums = torch.cat([dy.sum(dims, dtype=mean.dtype), (dy * centred).sum(dims)])  # (2C,)
        sum_dy, sum_dy_centred = sums.chunk(2)  # views: after the all-reduce they hold the sums of all ranks
        d_weight = sum_dy_centred * inv_std if ctx.needs_input_grad[1] else None
        d_bias = sum_dy.clone() if ctx.needs_input_grad[2] else None
        dx = None
        if ctx.needs_input_grad[0]:  # it is so on all ranks or on none; an empty batch takes part too
            dist.all_reduce(sums, group=ctx.group)
            sums /= count
            dx = centred.mul_(_as(-inv_std.square() * sum_dy_centred, x)).add_(dy).sub_(_as(sum_dy, x))
            dx = dx.mul_(_as(inv_std if weight is None else inv_std * weight, x)).to(x.dtype)
        return dx, d_weight, d_bias, None, None, None, None, None


def _as(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value per channel, shaped to be combined with x: (C,) -> (1, C, 1, ...)."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


class SyncBatchNorm(nn.Module):
    """Batch normalisation of (B, C), (B, C, L), (B, C, H, W), ... with the statistics of all ranks.

    In training it gives what `nn.BatchNorm` gives on the whole batch, in values, gradients and running statistics. In
    evaluation it sends nothing and uses the running statistics, the same on all ranks; if there are none, those of the
    local batch, as `nn.SyncBatchNorm` does. Without a process group it is `nn.BatchNorm`. All ranks must call it
    equally often, in the same mode; a rank without samples with B = 0.

    Communication, over `group`, in training: forward, one all-gather of 2C + 1 numbers from each rank; backward, one
    all-reduce of 2C, if x needs a gradient. Both block, once in each layer: the price is latency.
    Memory: forward, y, as large as x; saved for backward: x and 2C + 1 numbers. Backward: dx, and for a moment a second
    tensor of that size.

    Args:
        num_features: C.
        eps, momentum, affine, track_running_stats: as in `nn.BatchNorm2d`; momentum None: the plain average of all
            batches.
        group: the ranks that share statistics; default the world.

    Raises:
        ValueError: the input has not C channels, or all ranks together have fewer than two values per channel.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: torch.Tensor | None
    running_var: torch.Tensor | None
    num_batches_tracked: torch.Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum, self.group = num_features, eps, momentum, group
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)
        kept = track_running_stats
        self.register_buffer("running_mean", torch.zeros(num_features) if kept else None)
        self.register_buffer("running_var", torch.ones(num_features) if kept else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0) if kept else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, C, ...) -> (B, C, ...)."""
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ValueError(f"expected an input of (B, {self.num_features}, ...); got {tuple(x.shape)}")
        if not self.training or not dist.is_initialized():
            batch = self.training or self.running_mean is None
            share = self._next_share() if self.training else 0.0
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, batch, share, self.eps)
        count, mean, m2 = gather_moments(x.detach(), group=self.group)
        if count < 2:  # the same on all ranks: none is left waiting
            raise ValueError(f"batch norm needs 2 values per channel or more to train on; all ranks have {int(count)}")
        if self.running_mean is not None and self.running_var is not None:
            share = self._next_share()
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_((m2 / (count - 1)).to(self.running_var.dtype), share)  # unbiased, as in torch
        y: torch.Tensor = _Normalize.apply(x, self.weight, self.bias, count, mean, m2, self.eps, self.group)
        return y

    def _next_share(self) -> float:
        """The weight of a new batch in the running statistics."""
        if self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked += 1
        return 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"


def convert_sync_batchnorm(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> nn.Module:
    """Put a `SyncBatchNorm` in the place of every `nn.BatchNorm1d/2d/3d` of a model, before it is wrapped.

    Parameters and buffers stay the same objects, so that an optimizer that has them still works.

    Returns:
        `module`, changed in place; or its replacement, if it is a batch norm itself.

    Raises:
        ValueError: a lazy batch norm has not seen a batch yet.
    """
    return _convert(module, group, {})


def _convert(module: nn.Module, group: dist.ProcessGroup | None, done: dict[nn.Module, nn.Module]) -> nn.Module:
    if module in done:  # one module in two places stays one module
        return done[module]
    if isinstance(module, _LAZY):
        raise ValueError("a lazy batch norm does not know its size yet: run one batch through the model first")
    new = done[module] = module
    if isinstance(module, _BATCH_NORMS):
        old = module
        new = SyncBatchNorm(old.num_features, old.eps, old.momentum, False, False, group=group)
        new.affine, new.track_running_stats, new.training = old.affine, old.track_running_stats, old.training
        new.weight, new.bias = old.weight, old.bias
        new.running_mean, new.running_var = old.running_mean, old.running_var
        new.num_batches_tracked = old.num_batches_tracked
        done[module] = new
    for name, child in list(module._modules.items()):  # `named_children` would leave out a module's second name
        if child is not None:
            setattr(new, name, _convert(child, group, done))
    return new
