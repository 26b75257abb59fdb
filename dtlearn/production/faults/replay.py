"""Silent errors: a rank that computes wrong numbers fails nowhere, and its error reaches all ranks through the sum.

Two checks find two kinds:

- **Replicas.** After an update all ranks must hold the same bits. A checksum of the parameters, gathered, finds a rank
  whose copy was changed. It does not find a wrong gradient: the all-reduce gives the same wrong sum to all.
- **Replay.** Every share of the batch is computed by two ranks, from the same parameters, and the checksums of the
  gradients are compared. If they differ, a third rank computes that share too, and the one that is alone is wrong. It
  costs as much computation as the step itself, so it runs every few steps; and it needs arithmetic that gives the same
  bits on all ranks, as equal processors and deterministic kernels do.

Meta report 6 of 419 unexpected interruptions of Llama 3's training as silent data corruption (2407.21783, table 5).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist

Votes = Mapping[int, Mapping[int, int]]  # {share: {rank that computed it: checksum}}


def checksum(tensors: Iterable[torch.Tensor]) -> int:
    """CRC-32 of the bytes of all tensors, in order; equal bits give equal sums."""
    total = 0
    for tensor in tensors:
        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), total)
    return total


def outvoted(votes: Mapping[int, int]) -> tuple[int, ...]:
    """The ranks whose checksum differs from that of the majority; all of them if there is no majority.

    Args:
        votes: {rank: checksum of the same thing}.
    """
    counts = Counter(votes.values()).most_common()
    if len(counts) < 2:
        return ()
    if 2 * counts[0][1] <= len(votes):
        return tuple(sorted(votes))
    return tuple(sorted(rank for rank, vote in votes.items() if vote != counts[0][0]))


def wrong_ranks(votes: Votes) -> tuple[int, ...]:
    """The ranks that computed wrong, by the votes on each share.

    Two votes that differ accuse both of their ranks; a third vote says which.
    """
    return tuple(sorted({rank for of_share in votes.values() for rank in outvoted(of_share)}))


def compare_replicas(parameters: Iterable[torch.Tensor], group: dist.ProcessGroup) -> tuple[int, ...]:
    """The ranks whose parameters differ from the majority's; () if all are equal.

    **Communication:** an all-gather of 8 bytes per rank in `group`.
    """
    return outvoted(dict(enumerate(_gathered([checksum(parameters)], group))))


def compare_by_replay(mine: int, compute: Callable[[int], int], group: dist.ProcessGroup) -> tuple[int, ...]:
    """Compute the neighbour's share too, compare, and ask a third rank where two differ. The ranks that were wrong.

    With two ranks there is no third: both are named.

    Args:
        mine: checksum of the gradient that this rank computed of its own share.
        compute: `compute(share)`: checksum of the gradient of that share; share r is the one of rank r.
        group: all ranks.

    **Communication:** an all-gather of 16 bytes per rank, and another of 8 if some share is in doubt.
    **Memory:** one gradient more while a share is replayed.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return ()
    # Rank r replays the share of its right neighbour, so share s has the votes of ranks s and s - 1.
    sums = _gathered([mine, compute((rank + 1) % size)], group)
    votes = {s: {s: sums[2 * s], (s - 1) % size: sums[2 * ((s - 1) % size) + 1]} for s in range(size)}
    doubtful = [s for s in votes if outvoted(votes[s])]
    if not doubtful or size == 2:
        return wrong_ranks(votes)
    # All ranks know the same votes, so all come here; rank s - 2 is the third for share s.
    share = (rank + 2) % size
    thirds = _gathered([compute(share) if share in doubtful else 0], group)
    for s in doubtful:
        votes[s][(s - 2) % size] = thirds[(s - 2) % size]
    return wrong_ranks({s: votes[s] for s in doubtful})


def _gathered(values: list[int], group: dist.ProcessGroup) -> list[int]:
    """The values of all ranks, by rank. Checksums fit into int64."""
    mine = torch.tensor(values)  # (n,)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, mine, group=group)
    return torch.cat(gathered).tolist()
