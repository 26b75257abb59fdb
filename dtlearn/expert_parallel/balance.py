"""Load of experts: how uneven it is, and three ways to even it out.

All experts wait for the busiest one, or for the rank that has it. A router left alone feeds those that are ahead.

    auxiliary loss    alpha E sum_i f_i P_i: f_i is the share of choices that went to expert i, P_i the mean probability
                      that the router gave it. f is a count and has no gradient; P has. 1 (times alpha) if even, up to E
                      if one expert has all. Counted before drops: a dropped choice was a choice.
    z-loss            mean of logsumexp(logits)^2: keeps logits small, so that their softmax is exact enough
    selection bias    after each step b_i +- u for experts below or above the mean, used in the choice only: no gradient
                      that pulls against the loss

**Which tokens f counts** is a choice. Over those of all ranks the loss is that of one process with all tokens: f P is
linear in P, so the mean of the ranks' losses is right with one all-reduce of E counts, and nothing in backward. Over
those of a rank each rank has to be even by itself: another loss, and a stricter one. Two ranks that use two of
four experts each are even together, and not alone.

Sources: Fedus et al., 2101.03961, equations 4 to 6 (k = 1; for k choices f is their share, so that it adds up to 1);
Zoph et al., "ST-MoE", 2202.08906, equation 5; DeepSeek-AI, "DeepSeek-V3", 2412.19437, section 2.1.2; on global and
local counts, Qiu et al., "Demons in the Detail", 2501.11873.
"""

from __future__ import annotations

from typing import Any

import torch


def imbalance(load: torch.Tensor) -> float:
    """The busiest expert's load to the mean: 1.0 if even, E if one has all.

    Args:
        load: (E,), choices or rows of each expert; or of each rank.

    Raises:
        ValueError: nobody has any.
    """
    total = int(load.sum())
    if total == 0:
        raise ValueError("expected a load with at least one choice; got none: route some tokens first")
    return int(load.max()) * len(load) / total


def load_balancing_loss(
    probabilities: torch.Tensor, load: torch.Tensor, num_tokens: torch.Tensor | int, num_ranks: int = 1
) -> torch.Tensor:
    """E sum_i f_i P_i, (): equation 4 without alpha.

    Args:
        probabilities: (n, E), of this rank's tokens.
        load: (E,), choices of the tokens that count, without gradient.
        num_tokens: that count: n, or those of all ranks.
        num_ranks: that have them: the mean of their losses is the loss of all tokens, also if ranks are uneven.
    """
    f = load.to(probabilities.dtype) / load.sum().clamp(min=1)  # (E,)
    P = num_ranks * probabilities.sum(0) / num_tokens  # (E,)
    return len(load) * (f * P).sum()


def router_z_loss(logits: torch.Tensor, num_tokens: torch.Tensor | int, num_ranks: int = 1) -> torch.Tensor:
    """Mean of logsumexp(logits)^2 over tokens, ().

    Args:
        logits: (n, E).
        num_tokens, num_ranks: as for `load_balancing_loss`.
    """
    return num_ranks * logits.logsumexp(-1).square().sum() / num_tokens


def balanced_bias(selection_bias: torch.Tensor, load: torch.Tensor, speed: float = 0.001) -> torch.Tensor:
    """The selection bias after a step, (E,): higher for those with less than the mean load, lower for those with more.

    Args:
        selection_bias: before it, (E,). The result is fp32 at least: in bf16 a step of u would soon change nothing.
        load: choices of a whole step, of all micro-batches and all ranks, (E,): or ranks would choose differently.
        speed: u; 0.001 in DeepSeek-V3, whose scores are sigmoids in [0, 1].
    """
    load = load.to(torch.promote_types(selection_bias.dtype, torch.float32))
    return selection_bias + speed * (load.mean() - load).sign()


def attach_loss(y: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
    """`y` as it is; in backward `loss` gets the gradient 1, as if it had been added to whatever `y` leads to.

    So a loss from inside a model needs no way out: not through a pipeline's stages, nor through a checkpoint. It is not
    scaled with the loss at the end: who divides that one by m micro-batches divides this one, too.

    Source: `MoEAuxLossAutoScaler` of Megatron-LM, `core/transformer/moe/moe_utils.py`.

    Args:
        y: of any shape.
        loss: ().
    """
    out: torch.Tensor = _AttachLoss.apply(y, loss)
    return out


class _AttachLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.of_loss = loss.shape, loss.dtype, loss.device
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape, dtype, device = ctx.of_loss
        return gradient, torch.ones(shape, dtype=dtype, device=device)
