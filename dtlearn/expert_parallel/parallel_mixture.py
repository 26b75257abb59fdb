"""A mixture whose experts are divided over a group of ranks, each with tokens of its own: `ExpertParallelMixture`.

    forward     route own tokens; tell each rank how many rows come; rows to their experts' ranks (dispatch); experts;
                rows back to their tokens' ranks (combine); sum by weight
    backward    the same all-to-alls, the other way round: gradients of outputs to the experts, of inputs back

The router is on every rank, and sees the rank's own tokens. So do all other layers: for them the ep ranks are replicas.

Sources: Lepikhin et al., "GShard", 2006.16668, section 3.2; Megatron-LM, `core/transformer/moe/token_dispatcher.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import torch
import torch.distributed as dist

from dtlearn.sharing.along_dim import unshard
from dtlearn.sharing.shards import divide, rank_and_size, shard_of
from dtlearn.sharing.uneven import all_to_all_rows

from .dispatch import combine, exchange_counts, plan_dispatch
from .mixture import ExpertGPTConfig, MixtureOfExperts
from .routing import Routing


class DividedMixture(MixtureOfExperts):
    """What all mixtures have in common whose experts are divided: E/ep experts here, and counts of all ranks.

    **Communication**: with `global_counts` one all-reduce of 8 (E + 1) bytes over `replicas` in each forward pass.
    **Memory**: E/ep experts.

    Args:
        config: of the model.
        group: ranks among which the experts are divided, ep; None: all ranks.
        global_counts: the auxiliary losses count the choices of all replicas: they are then those of one process with
            all tokens. False: each rank counts its own.
        replicas: all ranks that have tokens of their own: those of `group` and its replicas, dp x ep; None: all ranks.
        seed: of the weights, the same on all ranks and for every ep.

    Raises:
        ValueError: the ranks do not divide the experts.
    """

    def __init__(
        self,
        config: ExpertGPTConfig,
        *,
        group: dist.ProcessGroup | None = None,
        global_counts: bool = True,
        replicas: dist.ProcessGroup | None = None,
        seed: int = 0,
    ) -> None:
        self.rank, self.num_ranks = rank_and_size(group)  # before the parameters, which are of this size
        self.local_experts = divide(config.num_experts, self.num_ranks, "experts")
        super().__init__(config, seed=seed)
        self.group, self.global_counts, self.replicas = group, global_counts, replicas

    def num_local_experts(self) -> int:
        """E/ep."""
        return self.local_experts

    def local_part(self, name: str, full: torch.Tensor) -> torch.Tensor:
        """This rank's part of a parameter of the whole mixture, or of its gradient: an own copy.

        Args:
            name: of the parameter, such as "experts.up_weight".
            full: of its shape in `MixtureOfExperts`.
        """
        if not name.startswith("experts."):
            return full.detach().clone()
        return shard_of(full, 0, self.num_ranks, self.rank, "experts")

    def counted(self, load: torch.Tensor, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor | int, int]:
        """The counts of all replicas together: the mean of the ranks' losses is then that of all tokens."""
        if not self.global_counts:
            return super().counted(load, num_tokens)
        totals = torch.cat([load, load.new_tensor([num_tokens])])  # (E + 1,)
        _, num_replicas = rank_and_size(self.replicas)
        if num_replicas > 1:
            dist.all_reduce(totals, group=self.replicas)
        return totals[:-1], totals[-1].clamp(min=1), num_replicas

    @classmethod
    def from_mixture(cls, mixture: MixtureOfExperts, **options: Any) -> Self:
        """This rank's part of a whole mixture, the same on all ranks; keeps no reference to it.

        **Communication**: none. **Memory**: E/ep experts, beside the whole mixture.

        Args:
            mixture: with all experts.
            options: the other arguments of the class, by keyword.
        """
        divided = cls(mixture.config, **options).to(mixture.router.weight)  # its device and format
        divided.load_full(dict(mixture.named_parameters()))
        divided.router.selection_bias.copy_(mixture.router.selection_bias)
        return divided

    @torch.no_grad()
    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """Take this rank's part of whole parameters; keeps no reference to them.

        **Communication** and **Memory**: none.

        Args:
            whole: all parameters of the `MixtureOfExperts`, by name.

        Raises:
            ValueError: a parameter is missing, unknown, or of another shape.
        """
        own = dict(self.named_parameters())
        if own.keys() != whole.keys():
            raise ValueError(f"expected the parameters {sorted(own)} of a whole mixture; got {sorted(whole)}")
        for name, parameter in own.items():
            shape = parameter.shape
            if name.startswith("experts."):
                shape = torch.Size([self.config.num_experts, *shape[1:]])
            if whole[name].shape != shape:
                raise ValueError(f"{name} is {tuple(shape)} in the whole mixture; got {tuple(whole[name].shape)}")
            parameter.copy_(self.local_part(name, whole[name]))  # in place: an optimizer may hold it

    @torch.no_grad()
    def full_params(self) -> dict[str, torch.Tensor]:
        """The parameters of the whole mixture, by name, on every rank. All ranks of the group call it.

        **Communication**: one all-gather for each of the experts' four parameters. **Memory**: the whole mixture.
        """
        return {
            name: unshard(p, 0, group=self.group) if name.startswith("experts.") else p.detach().clone()
            for name, p in self.named_parameters()
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        for group in (self.group, self.replicas):
            memo[id(group)] = group  # shared: there is no second one
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied


class ExpertParallelMixture(DividedMixture):
    """Adds to the page: weights as for every ep, capacity, auxiliary losses, dropout, recomputation, and errors.

    Tokens stay where they are, and rows travel. A rank that has no token, or whose experts nobody chose, takes part in
    every collective, forward and backward.

    **Communication**, for n tokens of this rank and elements of s bytes: an all-to-all of 8 E bytes, the counts; one of
    the rows (dispatch) and one of their outputs (combine), of which a rank sends what is not for itself:
    k n C s (ep-1)/ep if choices are even. Backward: combine's and dispatch's again. The experts get rows of all ep
    ranks: their gradients are sums over the group already, see `gradients`. With `global_counts` an all-reduce of
    8 (E + 1) bytes more.
    **Memory**: E/ep (8 C^2 + 5 C) + E C parameters. Kept for backward: m (C + 2 F) elements, where m is the number of
    rows that arrived: k n if the ranks are even, and up to ep k n if this rank's experts are everybody's choice.

    Arguments and attributes: see `DividedMixture` and `MixtureOfExperts`.
    """

    def apply_experts(self, tokens: torch.Tensor, routing: Routing) -> torch.Tensor:
        """All ranks of the group call it, each with its own tokens: (n, C) -> (n, C)."""
        plan = plan_dispatch(routing.experts, routing.kept, routing.num_experts)
        exchange = exchange_counts(plan.load, group=self.group)
        send, receive, order = exchange.send, exchange.receive, exchange.by_expert
        rows = all_to_all_rows(tokens[plan.tokens], send, receive, group=self.group)  # (m, C), by rank
        out = self.experts(rows[order], exchange.load)  # (m, C), by expert
        back = torch.empty_like(out).index_copy(0, order, out)  # (m, C), by rank: as they came
        return combine(all_to_all_rows(back, receive, send, group=self.group), plan, routing.weights)
