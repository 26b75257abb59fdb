"""The mean over all tokens of all ranks, when the ranks do not have the same number of tokens.

Data parallelism averages gradients: with N ranks the update uses (1/N) sum_r grad_r. If every rank's loss is the mean
over its own tokens, this is a mean of means, in which a token on a rank with few tokens counts more than others. It is
the mean over all tokens only if all ranks have equally many. What rank r has to differentiate instead is

    N * (sum of its tokens' losses) / (number of tokens of all ranks)

because the average over ranks takes the factor N away again. With gradient accumulation the number of tokens is that
of all micro-batches of all ranks, so it has to be known before the first backward:

    total = count_tokens(*(labels.ne(-100).sum() for _, labels in micro_batches))
    for inputs, labels in micro_batches:  # all but the last one in `no_sync()`
        loss_sum = cross_entropy(model(inputs), labels, reduction="sum")
        scale_for_averaging(loss_sum, total).backward()

Scale only what is a sum over tokens. A term that is a mean on each rank already, such as a router's balance loss, is
added after the scaling, or it counts N times (Hugging Face transformers #48690).

Reference: transformers #34191 (the wrong denominator in gradient accumulation) and #34242 (the same across ranks).
"""

from __future__ import annotations

import torch
import torch.distributed as dist


def mean_of_means(loss_sum: torch.Tensor, count: int | torch.Tensor) -> torch.Tensor:
    """The naive loss: the mean over this rank's tokens, as `reduction="mean"` gives it.

    Right only if all ranks have equally many tokens. A rank whose tokens are all padding gets 0/0 = NaN. What its
    gradients are depends on the loss: 0 from torch's cross-entropy, so that the others' are divided by a rank too
    many; NaN from a loss that is masked by hand, and by the averaging NaN on all ranks.

    Args:
        loss_sum: sum of the losses of this rank's tokens, ().
        count: number of this rank's tokens.
    """
    return loss_sum / count


def count_tokens(
    *counts: int | torch.Tensor, device: torch.device | str | None = None, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The number of tokens of one update: of all micro-batches and of all ranks. Call it once per update.

    Communication: one all-reduce over `group` of one int64 (8 bytes), before the first backward.
    Memory: 8 bytes.

    Args:
        counts: the tokens of each of this rank's micro-batches, integers or integer tensors (). Ranks may differ in
            how many micro-batches they have.
        device: where the sum is made; default: that of the first tensor among `counts`, else the CPU. NCCL needs
            the GPU.
        group: default the world.

    Returns:
        int64, (), the same on every rank.

    Raises:
        TypeError: a count is not an integer. Sums of float32 are not exact above 2**24 tokens.
    """
    for count in counts:
        if isinstance(count, torch.Tensor) and (count.is_floating_point() or count.is_complex()):
            raise TypeError(
                f"tokens are counted with integers; got a tensor of {count.dtype}: use labels.ne(-100).sum()"
            )
        if not isinstance(count, int | torch.Tensor):
            raise TypeError(f"tokens are counted with integers or integer tensors; got {type(count).__name__}")
    if device is None:
        device = next((count.device for count in counts if isinstance(count, torch.Tensor)), torch.device("cpu"))
    total = torch.zeros((), dtype=torch.int64, device=device)
    for count in counts:
        total += count
    dist.all_reduce(total, group=group)
    return total


def scale_for_averaging(
    loss_sum: torch.Tensor, total: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The loss to call `backward()` on, so that averaging gradients over ranks gives those of the mean over `total`.

    No gradient flows through `total`. If no rank has a token, the loss and its gradients are 0. A rank without tokens
    must still call `backward()` on its `loss_sum`, a sum over nothing that hangs on the model: the others wait for its
    gradients.

    Communication: none.
    Memory: one number.

    Args:
        loss_sum: sum of the losses of a micro-batch's tokens on this rank, ().
        total: what `count_tokens` returned.
        group: default the world; the one that gradients are averaged over.
    """
    size = dist.get_world_size(group)
    at_least_one = total.clamp(min=1)  # not by `if`: a GPU need not be waited for
    return loss_sum * (size / at_least_one.to(loss_sum.dtype))


def global_mean(
    loss_sum: torch.Tensor, count: int | torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """As `scale_for_averaging`, for an update of one micro-batch: counts and scales in one call.

    The value differs from rank to rank; its mean over ranks is the mean over all tokens: see `reported_loss`.

    Communication: one all-reduce over `group` of one int64 (8 bytes), in the forward pass; none in the backward pass.
    Memory: 8 bytes.

    Args:
        loss_sum: sum of the losses of this rank's tokens, ().
        count: number of this rank's tokens; 0 is allowed.
        group: default the world; the one that gradients are averaged over.

    Raises:
        TypeError: `count` is not an integer.
    """
    total = count_tokens(count, device=loss_sum.device, group=group)
    return scale_for_averaging(loss_sum, total, group=group)


def reported_loss(
    loss_sum: torch.Tensor, total: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The mean loss over all tokens of all ranks, for the log: the same on every rank, without a gradient.

    Communication: one all-reduce over `group` of one number (4 bytes in float32). It is for people, so every tenth
    step is often enough.
    Memory: one number.

    Args:
        loss_sum: sum over this rank's tokens; with accumulation over all its micro-batches, ().
        total: what `count_tokens` returned.
        group: default the world.
    """
    value = loss_sum.detach()
    value = value.clone() if value.dtype == torch.float64 else value.to(torch.float32, copy=True)
    dist.all_reduce(value, group=group)
    return value / total.clamp(min=1)
