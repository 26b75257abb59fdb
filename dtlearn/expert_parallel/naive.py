"""The naive way: every rank gathers the tokens of all, and runs its own experts on those that chose them.

No all-to-all, no counts: but each rank gets all tokens, of which an even share of k/ep or so are for its experts, and a
sum over ranks of a whole output for each token. The same interface as `ExpertParallelMixture`, and the same result.
"""

from __future__ import annotations

import torch

from dtlearn.sharing.along_dim import all_gather
from dtlearn.sharing.differentiable import gather_from, reduce_scatter_to

from .dispatch import combine, plan_dispatch
from .parallel_mixture import DividedMixture
from .routing import Routing


class GatheredMixture(DividedMixture):
    """All tokens on every rank. Each has as many tokens as the others.

    **Communication**, for n tokens of this rank and elements of s bytes: an all-gather of the tokens, for which each
    rank sends (ep-1) n C s bytes, two small ones of choices and weights, and a reduce-scatter of the outputs, again
    (ep-1) n C s; in backward the conjugates of those of tokens, weights and outputs. Two all-to-alls of rows send
    k n C s (ep-1)/ep each: the naive way sends ep/k times as much.
    **Memory**: E/ep experts, as `ExpertParallelMixture`; ep n C elements of all tokens, and of outputs k times that.
    """

    def apply_experts(self, tokens: torch.Tensor, routing: Routing) -> torch.Tensor:
        """All ranks of the group call it: (n, C) -> (n, C)."""
        group = self.group
        if self.num_ranks == 1:
            return super().apply_experts(tokens, routing)
        # What follows differs by rank, so backward adds the ranks' gradients up.
        everyone = gather_from(tokens, 0, partial_gradients=True, group=group)  # (ep n, C)
        weights = gather_from(routing.weights, 0, partial_gradients=True, group=group)  # (ep n, k)
        choices = torch.where(routing.kept, routing.experts, -1)
        experts = all_gather(choices, 0, group=group) - self.rank * self.local_experts  # (ep n, k), from 0 here
        mine = (experts >= 0) & (experts < self.local_experts)
        plan = plan_dispatch(experts, mine, self.local_experts)
        outputs = self.experts(everyone[plan.tokens], plan.load.tolist())
        partial = combine(outputs, plan, weights)  # (ep n, C) {U_ep}
        return reduce_scatter_to(partial, 0, group=group)  # (n, C)
