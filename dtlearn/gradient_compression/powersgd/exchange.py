"""What becomes of one bucket: two all-reduces, and the arithmetic before, between and after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ..residuals import Updates, all_finite, keep_if
from .state import PowerSGDState


@dataclass
class Matrices:
    """Matrices of one shape, of one bucket."""

    parameters: list[torch.Tensor]
    given: torch.Tensor  # (b, n, m)
    places: list[int]  # where each begins in its bucket
    p: torch.Tensor  # (b, n, r)
    q: torch.Tensor  # (b, m, r)


class BucketExchange:
    """A bucket on its way: the Ps and the small tensors leave, then the Qs.

    Args:
        state: of this rank.
        bucket: its buffer gets the mean.

    Attributes:
        future: of the buffer, with the mean in it.
    """

    def __init__(self, state: PowerSGDState, bucket: dist.GradBucket) -> None:
        self.state, self.buffer, self.num_ranks = state, bucket.buffer(), dist.get_world_size(state.group)
        parameters = bucket.parameters()
        wide = torch.promote_types(self.buffer.dtype, torch.float32)
        self.residual = state.residuals.of(parameters, self.buffer) if state.error_feedback else None
        self.given = self.buffer.to(wide) if self.residual is None else self.buffer + self.residual  # (e,) wide
        by_shape: dict[tuple[int, int, int], list[tuple[torch.Tensor, int]]] = {}
        self.small: list[slice] = []  # what is sent as it is
        place = 0
        for p in parameters:
            if low := state.low_rank(p.shape):
                by_shape.setdefault(low, []).append((p, place))
            elif p.numel():
                self.small.append(slice(place, place + p.numel()))
            place += p.numel()
        first = [state.q_of(p, m, r).to(wide) for (_, m, r), members in by_shape.items() for p, _ in members]
        self.kept_qs = torch.cat([self.given[:0], *(q.reshape(-1) for q in first)])  # at the end those to go on with
        self.q_sizes = [len(members) * m * r for (_, m, r), members in by_shape.items()]
        self.groups = [
            self.begin(shape, members, qs)
            for (shape, members), qs in zip(by_shape.items(), self.kept_qs.split(self.q_sizes), strict=True)
        ]
        self.message = torch.cat(
            [self.given[:0], *(g.p.view(-1) for g in self.groups), *(self.given[s] for s in self.small)]
        )
        self.work: Any = dist.all_reduce(self.message, group=state.group, async_op=True)
        self.future = MeanFuture(self.work, self.buffer.device)

    def begin(self, shape: tuple[int, int, int], members: list[tuple[torch.Tensor, int]], qs: torch.Tensor) -> Matrices:
        """The Ps of matrices of one shape, (n, m, r), and of their Qs, (b m r,)."""
        n, m, r = shape
        matrices = [self.given[place : place + n * m].view(n, m) for _, place in members]
        given = torch.stack(matrices) if len(matrices) > 1 else matrices[0].unsqueeze(0)  # (b, n, m)
        q = orthogonal(qs.view(-1, m, r))  # (b, m, r)
        return Matrices([p for p, _ in members], given, [place for _, place in members], given @ q, q)

    def send_qs(self) -> None:
        """When the Ps are there: make them orthogonal, and send the Qs."""
        self.work.wait()
        self.future.first_work = None
        sums = self.message.split([g.p.numel() for g in self.groups] + [sum(s.stop - s.start for s in self.small)])
        for matrices, p in zip(self.groups, sums, strict=False):
            matrices.p = orthogonal(p.view_as(matrices.p))
            matrices.q = matrices.given.transpose(1, 2) @ matrices.p
        self.small_means = sums[-1].div_(self.num_ranks)
        if not self.groups:
            self.finish()
            return
        self.qs = torch.cat([g.q.reshape(-1) for g in self.groups])
        work: Any = dist.all_reduce(self.qs, group=self.state.group, async_op=True)
        work.get_future().then(self.qs_are_there)

    def qs_are_there(self, done: Future[Any]) -> None:
        try:
            done.value()  # raises what went wrong
            self.finish()
        except Exception as error:
            self.future.set_exception(error)  # type: ignore[arg-type]  # or whoever waits for it would wait for ever

    def finish(self) -> None:
        """When the Qs are there: multiply, keep what is left, and hand out the mean."""
        if self.buffer.is_cuda:  # a callback has a stream of its own, and the memory was given out on another one
            for used in (self.given, self.message, self.kept_qs, *(t for g in self.groups for t in (g.p, self.qs))):
                used.record_stream(torch.cuda.current_stream(self.buffer.device))
        qs = self.qs.div_(self.num_ranks).split(self.q_sizes) if self.groups else ()
        for matrices, q in zip(self.groups, qs, strict=True):
            self.multiply(matrices, q.view_as(matrices.q))
        for part, mean in zip(self.small, self.small_means.split([s.stop - s.start for s in self.small]), strict=True):
            self.buffer[part] = mean
        updates: Updates = []
        if self.residual is not None:
            left = self.given.sub_(self.buffer)
            for part in self.small:
                left[part] = 0
            updates.append((self.residual, left))
        if self.groups and self.state.warm_start:
            updates.append((self.kept_qs, self.qs))
            for matrices, kept in zip(self.groups, self.kept_qs.split(self.q_sizes), strict=True):
                self.state.qs.update(zip(matrices.parameters, kept.view_as(matrices.q), strict=True))
        keep_if(all_finite(self.buffer), updates)
        self.future.set_result(self.buffer)

    def multiply(self, matrices: Matrices, q: torch.Tensor) -> None:
        """Write P Q^T into the buffer, Q being the mean, (b, m, r)."""
        n, m = matrices.given.shape[1:]
        means = [self.buffer[place : place + n * m].view(n, m) for place in matrices.places]
        if len(means) == 1 and self.buffer.dtype == q.dtype:
            torch.mm(matrices.p[0], q[0].T, out=means[0])  # no copy
            return
        for mean, product in zip(means, matrices.p @ q.transpose(1, 2), strict=True):
            mean.copy_(product)


class MeanFuture(Future[torch.Tensor]):
    """The future of a bucket; it has an end also if an error ends backward before the next bucket is there."""

    def __init__(self, first_work: Any, device: torch.device) -> None:
        super().__init__(devices=[device] if device.type == "cuda" else None)
        self.first_work = first_work  # until the Qs have been sent

    def wait(self) -> torch.Tensor:
        if self.first_work is not None:  # then the last bucket never came
            self.first_work.wait()
            raise RuntimeError("backward ended before all buckets were there: this bucket has no mean")
        return super().wait()


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Columns that span the same, each of norm 1 and orthogonal to the others: (b, n, r) -> (b, n, r), r <= n.

    Always a QR decomposition, also for columns of zeros. torch's hook takes Gram-Schmidt for ranks 1 and 2. On a CPU
    that is slower: with a guard for zeros 26 us in place of 5 for (1, 64, 1), 780 in place of 48 for (32, 1024, 2)
    (CPU time, one thread). On a GPU it may well be faster: QR there goes from matrix to matrix, 0.9 ms for 32 of them
    (pytorch issue 143281, an RTX 3090, torch 2.13); ours was not measured on one.
    """
    q: torch.Tensor = torch.linalg.qr(matrices).Q
    return q
