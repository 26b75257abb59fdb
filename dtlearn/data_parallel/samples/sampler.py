"""Which rank gets which samples: every rank works it out alone, and all agree without a message.

All ranks put the n samples into one order, the same everywhere because the seed is the same, and deal it out like
cards: rank r of N takes places r, r + N, r + 2N, ...

    n = 10, N = 4, not shuffled        rank 0    rank 1    rank 2    rank 3
    pad (the default)                  0 4 8     1 5 9     2 6 0*    3 7 1*     * seen twice in this epoch
    drop_last                          0 4       1 5       2 6       3 7        8 and 9 are not seen
    EvaluationSampler                  0 4 8     1 5 9     2 6       3 7        each once, uneven

Training needs the first or second: with even lengths all ranks make the same number of steps, and no rank waits for a
gradient that never comes. Evaluation needs the third, or it counts some samples twice (`evaluation.py`).

With tensor, pipeline or context parallelism, `num_replicas` and `rank` are those of the data-parallel group: ranks
that share one copy of the model must see the same samples. That is why nothing here needs a process group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
import torch.distributed as dist
from torch.utils.data import Sampler


def epoch_order(n: int, *, shuffle: bool = False, seed: int = 0, epoch: int = 0) -> list[int]:
    """The samples 0 to n - 1 in the order of that epoch, the same on every rank: torch's own, number for number.

    The generator starts from seed + epoch, so epoch 1 of seed 0 is epoch 0 of seed 1: leave room between seeds.
    """
    if not shuffle:
        return list(range(n))
    order: list[int] = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch)).tolist()
    return order


def shard_indices(
    n: int,
    num_replicas: int,
    rank: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
    start: int = 0,
) -> list[int]:
    """The samples that one rank sees in one epoch, in order.

    Args:
        n: number of samples in the data set.
        num_replicas: number N of ranks that share them.
        rank: 0 to N - 1.
        shuffle: a new order every epoch; False: 0, 1, 2, ...
        seed: of the order; equal on all ranks, or some samples are seen twice and others never.
        epoch: which epoch; with shuffle, the same number gives the same order.
        drop_last: leave out the last n % N samples of the order. False: repeat its first ones until N divides them.
        start: leave out that many at the start of the order, as they have been used (see `ResumableSampler`).

    Returns:
        ceil((n - start) / N) sample numbers, or floor with `drop_last`; as many on every rank.

    Raises:
        ValueError: n is negative, N below 1, the rank not in 0 to N - 1, or start not in 0 to n.
    """
    check_shard(n, num_replicas, rank)
    if not 0 <= start <= n:
        raise ValueError(f"start must be between 0 and {n}, got {start}")
    order = epoch_order(n, shuffle=shuffle, seed=seed, epoch=epoch)
    places = num_replicas * shard_size(n - start, num_replicas, drop_last)
    # A place beyond the end of the order is padding, and begins it anew.
    return [order[place % n] for place in range(start + rank, start + places, num_replicas)]


def shard_size(n: int, num_replicas: int, drop_last: bool) -> int:
    """The number of samples of each rank: n / N, rounded down or up."""
    return n // num_replicas if drop_last else -(-n // num_replicas)


def check_shard(n: int, num_replicas: int, rank: int) -> None:
    """Raise ValueError for numbers that make no shard."""
    if n < 0:
        raise ValueError(f"n must be 0 or more, got {n}")
    if num_replicas < 1:
        raise ValueError(f"num_replicas must be 1 or more, got {num_replicas}")
    if not 0 <= rank < num_replicas:
        raise ValueError(
            f"rank must be between 0 and {num_replicas - 1}, as num_replicas is {num_replicas}; got {rank}"
        )


class _ShardSampler(Sampler[int]):
    """The common part of the samplers: the data set's size, and who of how many this rank is."""

    def __init__(
        self,
        dataset: Sized | int,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if not isinstance(dataset, int | Sized):
            raise TypeError(
                f"a sampler needs a data set with a length, or the length; {type(dataset).__name__} has none"
            )
        if (num_replicas is None or rank is None) and not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "there is no process group to ask: give num_replicas= and rank=, or call init_process_group() first"
            )
        self.dataset = dataset
        self.num_replicas = dist.get_world_size(group) if num_replicas is None else num_replicas
        self.rank = dist.get_rank(group) if rank is None else rank
        self.n = _length(dataset)
        check_shard(self.n, self.num_replicas, self.rank)

    def _check_length(self) -> None:
        # Ranks that notice a grown data set at different times would disagree about who has what.
        if _length(self.dataset) != self.n:
            raise RuntimeError(
                f"the data set had {self.n} samples when this sampler was made, and now has {_length(self.dataset)}: "
                "make a new sampler"
            )


def _length(dataset: Sized | int) -> int:
    return dataset if isinstance(dataset, int) else len(dataset)


class DistributedSampler(_ShardSampler):
    """This rank's samples of an epoch, for `DataLoader(dataset, sampler=...)`; as torch's sampler of that name.

    Call `set_epoch(epoch)` before each epoch, or every epoch has the order of the first. The `drop_last` of DataLoader
    is another knob: that one leaves out a rank's last batch if it is not full.

    Communication: none.
    Memory: about 48 n bytes while an epoch begins (the order, as a tensor and as Python ints), then 40 n / N for the
        shard. A data set of 1e9 samples needs another way to shuffle.

    Reference: `torch.utils.data.distributed.DistributedSampler`, the same samples in the same order.

    Args:
        dataset: the data set, or the number of its samples.
        num_replicas, rank: default: those of `group`.
        shuffle, seed, drop_last: see `shard_indices`.
        group: default the world; asked only for what is not given.

    Raises:
        ValueError: see `shard_indices`.
        TypeError: the data set has no length.
        RuntimeError: num_replicas or rank is missing, and there is no process group; or, when an epoch begins, the
            data set has changed its length.
    """

    def __init__(
        self,
        dataset: Sized | int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, group=group)
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    @property
    def num_samples(self) -> int:
        """Samples of this rank in one epoch."""
        return shard_size(self.n, self.num_replicas, self.drop_last)

    @property
    def total_size(self) -> int:
        """Samples of all ranks in one epoch, padding included."""
        return self.num_samples * self.num_replicas

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        self._check_length()
        how = {"shuffle": self.shuffle, "drop_last": self.drop_last}
        return iter(shard_indices(self.n, self.num_replicas, self.rank, seed=self.seed, epoch=self.epoch, **how))

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; the same number on every rank."""
        self.epoch = epoch


class EvaluationSampler(_ShardSampler):
    """Every sample on exactly one rank: nothing repeated, nothing dropped, never shuffled.

    Rank r takes r, r + N, ...: ceil(n / N) samples on the first n % N ranks, floor(n / N) on the others, and none at
    all on ranks r >= n. So ranks may make different numbers of batches: a model that communicates in its forward pass
    (see `evaluate`) must not be run over them, nor must a loop with a collective per batch.

    Communication: none.
    Memory: none; the indices are a `range`.

    Args, Raises: those of `DistributedSampler`.
    """

    def __iter__(self) -> Iterator[int]:
        self._check_length()
        return iter(range(self.rank, self.n, self.num_replicas))

    def __len__(self) -> int:
        return len(range(self.rank, self.n, self.num_replicas))
