"""LAMB: what LARS does for SGD, done for Adam. It trained BERT with batches of up to 65,536 sequences."""

from __future__ import annotations

from typing import Any

import torch

from .lars import LayerwiseOptimizer, trust_ratio


class LAMB(LayerwiseOptimizer):
    """Adam with a trust ratio for each parameter (You et al. 1904.00962, Algorithm 2, with phi(z) = z as they use it).

    For each parameter x with gradient g, at its update number t from 1:

        m <- b1 m + (1 - b1) g            v <- b2 v + (1 - b2) g^2
        r = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
        x <- x - lr |x| / |r + wd x| (r + wd x)

    Adam's direction r has entries near 1 whatever the gradient is; the ratio makes the step's norm lr times that of x.

    Communication: none. Every rank has the same averaged gradients, so the norms are the same too. Where parameters
    are sharded, each norm needs an all-reduce.
    Memory: m and v, twice the parameters.

    Args:
        params: parameters or groups; a group may have its own values of what follows.
        lr: the share of its norm that a layer moves in one step.
        betas: b1 and b2.
        eps: added to the root.
        weight_decay: wd.
        exclude_bias_and_norm: parameters with fewer than two dimensions, which are those of biases and of norms, get
            plain Adam, without ratio and decay. The paper's algorithm does not exclude them; practice does.

    Raises:
        ValueError: a value is negative, or a beta not below 1.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        exclude_bias_and_norm: bool = False,
    ) -> None:
        if min(lr, eps, weight_decay) < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                "lr, eps and weight_decay must not be negative, and betas be in [0, 1); got "
                f"{lr}, {eps}, {weight_decay} and {betas}"
            )
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "exclude_bias_and_norm": exclude_bias_and_norm,
        }
        super().__init__(params, defaults)

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        x, g = parameter, gradient  # the paper's names
        state = self.state[x]
        if not state:
            state["step"], state["m"], state["v"] = 0, torch.zeros_like(x), torch.zeros_like(x)
        state["step"] += 1
        b1, b2 = group["betas"]
        m = state["m"].lerp_(g, 1 - b1)
        v = state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
        r = m / (1 - b1 ** state["step"])
        r /= (v / (1 - b2 ** state["step"])).sqrt_().add_(group["eps"])
        if not (group["exclude_bias_and_norm"] and x.dim() < 2):
            r += group["weight_decay"] * x
            r *= trust_ratio(x, r.norm())
        x -= group["lr"] * r
