"""An all-reduce whose every message is compressed, with error feedback on both sides of it.

Source: Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed", ICML
2021, arXiv 2102.02888. DeepSpeed had it as `compressed_allreduce`, with the root mean square as the scale.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.sharing.flat_collectives import all_gather_single

from .codecs.codec import Codec, Payload


class CompressedAllReduce:
    """The mean of a vector over the ranks, in compressed messages only.

    Each of N ranks is the *server* of one shard of the vector. It gets everybody's compressed shard (all-to-all),
    averages, compresses the mean, and gives it to everybody (all-gather). Compression happens twice, so there are two
    errors that are kept for the next call: the worker's, of its whole vector, and the server's, of its shard's mean.
    Gathering everybody's whole vector needs one compression only, but N - 1 payloads in place of 2 (N - 1) / N.

    **Communication** (n elements, c(s) bytes of payload for s elements, s = n / N rounded up to 8): one all-to-all of
    N c(s) and one all-gather of c(s); each rank sends 2 (N - 1) c(s). With `PackedSign` that is 1/32 of an all-reduce
    of float32, and the scales: with 1,024 elements to a scale 1/32 + 1/1024.
    **Memory** (in the vector's precision): n + n / N for the errors, for good; about 3 n in a call.

    Args:
        numel: n.
        codec: what compresses; biased codecs are what the errors are for.
        like: a tensor of the dtype (float32 or float64) and on the device of the vectors.
        group: ranks that average; None: all.

    Attributes:
        worker_error: (n,), what this rank has not sent yet.
        server_error: (s,) or less for the last shards, what this rank has not given out yet.
    """

    def __init__(self, numel: int, codec: Codec, *, like: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        self.codec, self.group = codec, group
        self.num_ranks = dist.get_world_size(group)
        size = -(-numel // (8 * self.num_ranks)) * 8  # of a shard: whole bytes of bits
        ends = [min(size * (k + 1), numel) for k in range(self.num_ranks)]
        self.sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        self.worker_error = torch.zeros(numel, dtype=like.dtype, device=like.device)
        self.server_error = self.worker_error.new_zeros(self.sizes[dist.get_rank(group)])

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """The mean as everybody gets it, (n,), the same on every rank.

        Args:
            x: (n,), of this rank.

        Raises:
            ValueError: the mean is not finite. Every rank raises it, and the errors are as before.
        """
        given = x + self.worker_error  # (n,)
        payloads = [self.codec.encode(shard) for shard in given.split(self.sizes)]
        rows = torch.stack(self._same_length([_as_bytes(payload) for payload in payloads]))  # (N, bytes)
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows, group=self.group)
        mine = dist.get_rank(self.group)
        total = torch.zeros_like(self.server_error)  # (s,)
        for row in received:
            self.codec.add_decoded(total, _from_bytes(row, payloads[mine]))
        mean = total / self.num_ranks + self.server_error  # (s,)
        payload = self.codec.encode(mean)
        rows = rows.new_zeros(rows.shape)
        all_gather_single(rows.view(-1), self._same_length([_as_bytes(payload)], rows.shape[1])[0], group=self.group)
        shards = [
            self.codec.decode(_from_bytes(row, like), size)
            for row, like, size in zip(rows, payloads, self.sizes, strict=True)
        ]
        result = torch.cat(shards)  # (n,)
        if not bool(result.isfinite().all()):
            raise ValueError(
                "expected finite values from every rank, but their mean has NaN or infinity, which error feedback "
                "would keep for ever. Nothing was changed: a rank has a gradient that is not finite, then skip this "
                "step on all; or training has diverged"
            )
        sent = torch.cat([self.codec.decode(p, size) for p, size in zip(payloads, self.sizes, strict=True)])  # (n,)
        self.worker_error = given - sent
        self.server_error = mean - shards[mine]
        return result

    def state_dict(self) -> dict[str, Any]:
        """This rank's errors; every rank saves its own."""
        return {
            "num_ranks": self.num_ranks,
            "rank": dist.get_rank(self.group),
            "worker_error": self.worker_error,
            "server_error": self.server_error,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the errors of the same rank of as many ranks.

        Raises:
            ValueError: they are of another number of ranks, of another rank, or of another vector.
        """
        here = self.num_ranks, dist.get_rank(self.group), len(self.worker_error)
        found = state["num_ranks"], state["rank"], len(state["worker_error"])
        if found != here:
            raise ValueError(
                "expected the errors of rank {1} of {0}, of {2:,} elements, but these are of rank {4} of {3}, of "
                "{5:,}: what a rank has not sent yet is its own, and so is its shard".format(*here, *found)
            )
        self.worker_error = state["worker_error"].to(self.worker_error)
        self.server_error = state["server_error"].to(self.server_error)

    def _same_length(self, messages: list[torch.Tensor], length: int = 0) -> list[torch.Tensor]:
        """Messages of equal length, zeros behind the end: the last shards may be shorter."""
        length = max([length, *map(len, messages)])
        return [torch.nn.functional.pad(message, (0, length - len(message))) for message in messages]


def _as_bytes(payload: Payload) -> torch.Tensor:
    """A payload as one message: a message costs a latency each."""
    return torch.cat([part.contiguous().view(torch.uint8).view(-1) for part in payload])


def _from_bytes(message: torch.Tensor, like: Payload) -> Payload:
    """The payload in a message, with shapes and dtypes of another one of as many elements."""
    sizes = [part.numel() * part.element_size() for part in like]
    pieces = [message[end - size : end].clone() for end, size in zip(accumulate(sizes), sizes, strict=True)]
    return tuple(piece.view(part.dtype).view(part.shape) for piece, part in zip(pieces, like, strict=True))
