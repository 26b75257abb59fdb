"""Expert parallelism on a page: tokens stay on their rank, rows travel to the experts and back.

    route       each token chooses k of E experts
    counts      each rank tells the others how many rows come        all-to-all of E numbers
    dispatch    rows to the ranks of their experts                   all-to-all, uneven
    experts     E/ep networks on each rank, on rows of all ranks
    combine     outputs back to the ranks of their tokens            all-to-all, uneven
    weigh       in the tokens' order again, a token's k outputs are added by weight

Backward is the same way back: autograd sends gradients by the same two all-to-alls, reversed.

Source: Lepikhin et al., "GShard", 2006.16668, section 3.2.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dtlearn.sharing.uneven import all_to_all_rows


class DispatchedExperts(nn.Module):
    """k of E experts for each token: (n, C) -> (n, C). Each of ep ranks has n tokens of its own.

    Of a step's gradients, experts have the sum over all ep ranks, the router this rank's term.

    **Communication**: 8 E bytes of counts; k n C elements forward, twice, and backward, twice, of
    which (ep-1)/ep leave the rank if choices are even. **Memory**: E/ep experts.
    """

    def __init__(
        self,
        router: Tensor,  # (E, C), whole, the same on all ranks
        experts: list[nn.Module],  # E/ep, this rank's: (m, C) -> (m, C)
        top_k: int,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.router, self.experts = nn.Parameter(router.detach().clone()), nn.ModuleList(experts)
        self.top_k, self.group = top_k, group

    def forward(self, tokens: Tensor) -> Tensor:
        """All ranks call it, also one without a token: the others wait for it."""
        num_ranks, group = dist.get_world_size(self.group), self.group

        # Route, in fp32 at least: small differences decide.
        dtype = torch.promote_types(tokens.dtype, torch.float32)
        p = F.linear(tokens.to(dtype), self.router.to(dtype)).softmax(-1)  # (n, E)
        weights, chosen = p.topk(self.top_k)  # (n, k), (n, k)
        weights = weights / weights.sum(-1, keepdim=True)

        # Rows sorted by expert are sorted by rank, too.
        order = chosen.flatten().argsort(stable=True)  # (n k,)
        rows = tokens[order // self.top_k]  # (n k, C)

        # Counts first: who receives has to know how much.
        every = torch.arange(len(self.router), device=tokens.device)
        going = (chosen.view(-1, 1) == every).sum(0).view(num_ranks, -1)  # (ep, E/ep)
        coming = torch.empty_like(going)
        dist.all_to_all_single(coming, going, group=group)
        send, receive = going.sum(1).tolist(), coming.sum(1).tolist()

        # Dispatch. What comes is sorted by rank, then by expert: each block to its own expert.
        rows = all_to_all_rows(rows, send, receive, group=group)  # (m, C)
        blocks = rows.split(coming.flatten().tolist())  # ep x E/ep of them
        own = len(self.experts)
        inputs = [torch.cat(blocks[e::own]) for e in range(own)]
        outputs = [f(x) for f, x in zip(self.experts, inputs, strict=True)]
        parts = [y.split(coming[:, e].tolist()) for e, y in enumerate(outputs)]

        # Combine: the blocks as they came, back to where they came from.
        back = torch.cat([parts[e][i] for i in range(num_ranks) for e in range(own)])  # (m, C)
        rows = all_to_all_rows(back, receive, send, group=group)  # (n k, C), sorted by expert
        by_token = torch.empty_like(rows).index_copy(0, order, rows)  # the tokens' order
        weighted: Tensor = by_token.unflatten(0, (-1, self.top_k)) * weights[..., None]  # (n, k, C)
        return weighted.sum(1).to(tokens.dtype)
