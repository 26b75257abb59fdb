"""A mixture of experts in the place of a block's feed-forward network, all experts in one process: the reference.

    tokens (n, C) -> router -> Routing -> rows sorted by expert -> experts -> rows -> sum over a token's k, by weight

Only `apply_experts` changes when experts lie on several ranks; `ExpertParallelMixture` and `GatheredMixture` override
it. Shapes: see `routing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.models.gpt import INIT_STD, GPTConfig

from .balance import attach_loss, load_balancing_loss, router_z_loss
from .dispatch import combine, plan_dispatch
from .experts import Experts
from .routing import Routing, expert_capacity, route


@dataclass(frozen=True)
class ExpertGPTConfig(GPTConfig):
    """Sizes of a GPT whose feed-forward networks are mixtures of experts.

    Attributes:
        num_experts: E, in each block.
        top_k: k, experts of a token: 1 (Switch), 2 (GShard, Mixtral), or more.
        capacity_factor: of `expert_capacity`; None: dropless.
        renormalise: the k weights of a token add up to 1; None: if k > 1.
        balance_coefficient: alpha of the auxiliary loss; 0: none. 0.01 in Switch.
        z_coefficient: of the z-loss; 0: none. 0.001 in ST-MoE.

    Raises:
        ValueError: as `GPTConfig`; more experts for a token than there are, or none; k = 1 with renormalised weights; a
            negative coefficient; or a capacity factor that is not positive.
    """

    num_experts: int = 4
    top_k: int = 2
    capacity_factor: float | None = None
    renormalise: bool | None = None
    balance_coefficient: float = 0.01
    z_coefficient: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.top_k <= self.num_experts:
            raise ValueError(f"top_k must be 1 to num_experts ({self.num_experts}); got {self.top_k}")
        if self.capacity_factor is not None and not self.capacity_factor > 0:
            raise ValueError(
                f"capacity_factor must be positive, such as 1.25, or None (dropless); got {self.capacity_factor}"
            )
        if self.renormalise and self.top_k == 1:
            raise ValueError(
                "renormalise=True with top_k=1 makes each weight 1, and the router learns nothing from the loss: leave "
                "it out, or take top_k=2"
            )
        for name in ("balance_coefficient", "z_coefficient"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more; got {getattr(self, name)}")

    @property
    def num_parameters(self) -> int:
        """As for `GPTConfig`, with E experts and a router in each block."""
        C = self.hidden_size
        one = 8 * C**2 + 5 * C  # a feed-forward network
        return super().num_parameters + self.num_layers * ((self.num_experts - 1) * one + self.num_experts * C)


class Router(nn.Module):
    """Choices of experts: (n, C) -> `Routing`. In fp32 at least, whatever the tokens are in.

    A softmax in bf16 has 8 bits: probabilities that differ by less than 1/256 of themselves are equal there, and which
    expert is chosen, and with which weight, would be left to rounding.

    **Communication**: none: a rank routes its own tokens.
    **Memory**: E C parameters, not drawn here. Kept for backward: (n, E) twice or so.

    Args:
        config: of the model.
    """

    selection_bias: torch.Tensor

    def __init__(self, config: ExpertGPTConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.register_buffer("selection_bias", torch.zeros(config.num_experts))  # see `balanced_bias`

    def forward(self, tokens: torch.Tensor) -> Routing:
        """Route tokens that compete for the same places."""
        config, dtype = self.config, torch.promote_types(tokens.dtype, torch.float32)
        with torch.autocast(tokens.device.type, enabled=False):
            logits = F.linear(tokens.to(dtype), self.weight.to(dtype))  # (n, E)
        capacity = None
        if config.capacity_factor is not None:
            capacity = expert_capacity(len(tokens), config.num_experts, config.top_k, config.capacity_factor)
        renormalise = config.top_k > 1 if config.renormalise is None else config.renormalise
        return route(
            logits, config.top_k, renormalise=renormalise, capacity=capacity, selection_bias=self.selection_bias
        )


class MixtureOfExperts(nn.Module):
    """Drop-in for `FeedForward`: (B, T, C) -> (B, T, C), each token through k of E experts.

    The gradient of the auxiliary losses is attached to the output (`attach_loss`): a training loop adds nothing.

    **Communication**: none.
    **Memory**: E (8 C^2 + 5 C) + E C parameters. Kept for backward, for each token: k (C + 2 F) elements in the
    experts, and k C of their outputs.

    Args:
        config: of the model.
        seed: of the weights; None: torch's default state.

    Attributes:
        router, experts: see there.
        auxiliary_scale: what the auxiliary losses' gradient is multiplied by: 1/m where the loss of a step is the mean
            over m micro-batches.
        auxiliary_loss: what was attached in the last forward pass, before `auxiliary_scale`, detached, (); for reports.
        load: choices of each expert in the last forward pass, (E,): of all ranks, if they are counted together.
        routing: of the last forward pass, detached.
    """

    def __init__(self, config: ExpertGPTConfig, *, seed: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.router = Router(config)
        self.experts = Experts(self.num_local_experts(), config.hidden_size, 4 * config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.auxiliary_scale = 1.0
        self.auxiliary_loss: torch.Tensor | None = None
        self.load: torch.Tensor | None = None
        self.routing: Routing | None = None
        with torch.no_grad():
            for name, full in mixture_parameters(config, seed):
                self.get_parameter(name).copy_(self.local_part(name, full))

    def num_local_experts(self) -> int:
        """How many are here."""
        return self.config.num_experts

    def local_part(self, name: str, full: torch.Tensor) -> torch.Tensor:
        """What is here of a parameter of the whole mixture."""
        return full

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., C) -> (..., C)."""
        tokens = x.flatten(0, -2)  # (n, C)
        routing = self.router(tokens)
        y = self.apply_experts(tokens, routing)  # (n, C)
        y = self._with_auxiliary_losses(y, routing)
        out: torch.Tensor = self.dropout(y.view_as(x))
        return out

    def apply_experts(self, tokens: torch.Tensor, routing: Routing) -> torch.Tensor:
        """Each token's sum over its experts, by weight: (n, C) -> (n, C)."""
        plan = plan_dispatch(routing.experts, routing.kept, routing.num_experts)
        rows = tokens[plan.tokens]  # (a, C), sorted by expert
        return combine(self.experts(rows, plan.load.tolist()), plan, routing.weights)

    def counted(self, load: torch.Tensor, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor | int, int]:
        """What counts in the auxiliary losses: choices of each expert, tokens, and how many ranks have them."""
        return load, max(num_tokens, 1), 1

    def _with_auxiliary_losses(self, y: torch.Tensor, routing: Routing) -> torch.Tensor:
        config = self.config
        self.routing = Routing(*(value.detach() for value in vars(routing).values()))
        self.load, num_tokens, num_ranks = self.counted(routing.load(), len(y))
        balance = load_balancing_loss(routing.probabilities, self.load, num_tokens, num_ranks)
        z = router_z_loss(routing.logits, num_tokens, num_ranks)
        loss = config.balance_coefficient * balance + config.z_coefficient * z
        self.auxiliary_loss = loss.detach()
        return attach_loss(y, self.auxiliary_scale * loss) if self.training else y


def mixture_parameters(config: ExpertGPTConfig, seed: int | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and values of each parameter of a whole mixture, one at a time: as GPT-2's, the router's like another layer.

    **Communication**: none. **Memory**: one whole parameter.

    Args:
        config: of the model.
        seed: the same on all ranks; None: torch's default state.
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    E, C, width = config.num_experts, config.hidden_size, 4 * config.hidden_size
    residual_std = INIT_STD / math.sqrt(2 * config.num_layers)  # the end of a residual branch
    yield "router.weight", torch.empty(E, C).normal_(std=INIT_STD, generator=generator)
    yield "experts.up_weight", torch.empty(E, width, C).normal_(std=INIT_STD, generator=generator)
    yield "experts.up_bias", torch.zeros(E, width)
    yield "experts.down_weight", torch.empty(E, C, width).normal_(std=residual_std, generator=generator)
    yield "experts.down_bias", torch.zeros(E, C)
