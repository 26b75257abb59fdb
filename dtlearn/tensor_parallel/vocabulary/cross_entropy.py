"""Cross entropy of logits that are divided by vocabulary: each rank sends three numbers for a token, and no logit.

With logits z_1 ... z_V of one token, target y and m = max z, the loss is log(sum of exp(z_i - m)) - (z_y - m). A rank
has V/t of the logits: it has a part of the maximum, a part of the sum, and z_y or nothing. Subtracting m is not for
looks: exp(89) overflows in float32.

Shapes in this file: B batch, T sequence, V vocabulary, padded to a multiple of the t ranks; N = B T tokens.

Sources: Shoeybi et al., "Megatron-LM", 1909.08053, section 3; `vocab_parallel_cross_entropy` in Megatron-LM's
`core/tensor_parallel/cross_entropy.py`, which sends the target's logit and the sum in two messages, and `loss_parallel`
in `torch.distributed.tensor.parallel`. Label smoothing: Szegedy et al., 1512.00567, section 7.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from dtlearn.sharing.shards import rank_and_size

from .rows import local_rows, require_tokens


def vocabulary_parallel_cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    num_classes: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """`page_cross_entropy` with a padded vocabulary, label smoothing, reductions, 16-bit logits and errors.

    It is `F.cross_entropy` of logits (B, T, V/t), the same loss on every rank, in nats.

    **Communication**: forward: one all-reduce (max) of N elements and one (sum) of 2 N, of 3 N with
    label smoothing; backward: none. Gathering the logits would take N V.
    **Memory**: N V/t elements, the softmax of this rank's logits, from forward to backward.

    Args:
        logits: this rank's columns, of any leading shape. Computed in float32 if in 16 bits.
        targets: of the leading shape, the same on all ranks.
        ignore_index: tokens with this target count neither in the sum nor in the mean.
        label_smoothing: the share of the target's probability that all V classes divide evenly.
        reduction: "mean" over the tokens that count, "sum", or "none": (B, T), 0 where ignored.
        num_classes: V without padding; None: there is none.
        group: None: all ranks.

    Raises:
        ValueError: the shapes do not fit, the logits are not divided, or a target is outside V.
    """
    vocabulary = _describe(logits, targets, num_classes, group)
    if not 0 <= label_smoothing <= 1 or reduction not in ("mean", "sum", "none"):
        raise ValueError(
            'label_smoothing is from 0 to 1, and reduction "mean", "sum" or "none"; got '
            f"{label_smoothing} and {reduction!r}"
        )
    require_tokens(targets, vocabulary.size, "target", ignore_index)
    losses: torch.Tensor = _CrossEntropy.apply(logits, targets, label_smoothing, vocabulary, group)
    counts = targets != ignore_index  # (B, T)
    losses = losses.masked_fill(~counts, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()


class _Vocabulary(NamedTuple):
    """V without padding; this rank's columns, V/t; how many of them are tokens; this rank, and t."""

    size: int
    columns: int
    tokens: int
    rank: int
    num_ranks: int


class _CrossEntropy(torch.autograd.Function):
    """Loss of each token, (B, T). Written out, so that backward needs no rank but this one."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        targets: torch.Tensor,
        smoothing: float,
        vocabulary: _Vocabulary,
        group: dist.ProcessGroup | None,
    ) -> torch.Tensor:
        z = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)  # (B, T, V/t)
        z[..., vocabulary.tokens :] = -torch.inf  # padding: exp(-inf) = 0
        m = z.amax(-1)  # (B, T)
        if vocabulary.num_ranks > 1:
            dist.all_reduce(m, dist.ReduceOp.MAX, group=group)
        z -= m[..., None]

        rows, is_own = local_rows(targets, vocabulary.columns, vocabulary.rank)  # (B, T), (B, T)
        rows = rows[..., None]
        terms = [z.gather(-1, rows)[..., 0].masked_fill(~is_own, 0.0)]  # z_y - m on one rank, 0 on others
        if smoothing:
            terms.append(z[..., : vocabulary.tokens].sum(-1))
        softmax = z.exp_()
        sums = torch.stack([softmax.sum(-1), *terms])  # (2 or 3, B, T) {U_t}
        if vocabulary.num_ranks > 1:
            dist.all_reduce(sums, group=group)

        log_sum = sums[0].log()
        loss = log_sum - sums[1]
        if smoothing:
            loss = (1 - smoothing) * loss + smoothing * (log_sum - sums[2] / vocabulary.size)
        softmax /= sums[0, ..., None]
        ctx.save_for_backward(softmax, rows, is_own)
        ctx.smoothing, ctx.vocabulary, ctx.dtype = smoothing, vocabulary, logits.dtype
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        softmax, rows, is_own = ctx.saved_tensors
        target = (1 - ctx.smoothing) * is_own[..., None].to(softmax)  # (B, T, 1)
        d_logits = softmax.scatter_add(-1, rows, -target)  # (B, T, V/t)
        d_logits[..., : ctx.vocabulary.tokens] -= ctx.smoothing / ctx.vocabulary.size
        return d_logits.mul_(gradient[..., None]).to(ctx.dtype), None, None, None, None


def _describe(
    logits: torch.Tensor, targets: torch.Tensor, num_classes: int | None, group: dist.ProcessGroup | None
) -> _Vocabulary:
    rank, num_ranks = rank_and_size(group)
    if logits.shape[:-1] != targets.shape or logits.ndim == 0:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need one target for each row of V/t columns, "
            f"{tuple(logits.shape[:-1])}; got targets of shape {tuple(targets.shape)}"
        )
    columns = logits.shape[-1]
    size = columns * num_ranks if num_classes is None else num_classes
    if size > columns * num_ranks or (num_ranks > 1 and size <= columns):
        raise ValueError(
            f"{num_ranks} ranks with {columns} columns of logits each have {columns * num_ranks} columns, which do "
            f"not make a vocabulary of {size} divided among them: a rank has about {-(-size // num_ranks)}. Is the "
            "group that of the layer that made the logits, and are the logits not gathered?"
        )
    return _Vocabulary(size, columns, min(max(size - rank * columns, 0), columns), rank, num_ranks)
