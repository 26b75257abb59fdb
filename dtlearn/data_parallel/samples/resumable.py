"""A sampler that goes on in the middle of an epoch, on the same number of ranks or another.

Deal cards to N ranks, and after any number of rounds the cards that are gone are the first ones of the pack. So one
number says which samples have been used: `consumed`, counted over all ranks. To go on, with N ranks or with any
other number, drop that many from the order of the epoch and deal out the rest.

Who counts? Not the sampler. `DataLoader` asks it for the samples of batches that nobody has seen yet: with 2 workers,
it is 4 batches ahead by default. A sampler that counted what it hands out would, after a resume, skip them. Only the
training loop knows what it has used, and says so with `advance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch.distributed as dist

from .sampler import DistributedSampler, shard_indices, shard_size

_KEYS = ("n", "shuffle", "seed", "epoch", "consumed")


class ResumableSampler(DistributedSampler):
    """A `DistributedSampler` whose place in the epoch can be saved and loaded.

        sampler = ResumableSampler(dataset)
        sampler.load_state_dict(saved["sampler"])          # only to resume
        for epoch in range(sampler.epoch, num_epochs):
            sampler.set_epoch(epoch)                       # keeps the place if it is the epoch that was loaded
            for x, y in DataLoader(dataset, batch_size=32, sampler=sampler):
                train_step(x, y)
                sampler.advance(len(x))                    # after the step
                ...                                        # save {"sampler": sampler.state_dict(), ...} now and then

    The samples of an epoch, before and after the stop together, are each sample once, plus padding: fewer repeated
    samples than ranks, taken from the start of the epoch's order. With `drop_last` each sample comes at most once, and
    the part that is left when the last ranks stop, fewer samples than they are, is dropped. On the same number of
    ranks the samples are those of the run that never stopped, rank by rank.

    The state is the same on all ranks: save it once. With another batch size it works too: it counts samples.

    Communication: none.
    Memory: that of `DistributedSampler`; the state is five numbers.

    Reference: torchdata's `StatefulDataLoader` keeps a state of each rank's loader; this one can change N.

    Args, Raises: those of `DistributedSampler`.
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
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last, group=group)
        self.consumed = 0  # samples of this epoch that training has used, over all ranks
        self._handed_out = False  # an iterator of this epoch ran to its end
        self._loaded = (
            False  # the place in this epoch was loaded and may be its end: then nothing is left, and nothing wrong
        )

    def __len__(self) -> int:
        """Samples that this rank still has to see in this epoch: what a new iteration gives."""
        return shard_size(self.n - self.consumed, self.num_replicas, self.drop_last)

    def __iter__(self) -> Iterator[int]:
        """The rest of the epoch. Raises RuntimeError if this sampler has been through it already."""
        self._check_length()
        if self.consumed and not len(self) and not self._loaded:
            raise RuntimeError(f"epoch {self.epoch} is used up: call set_epoch({self.epoch + 1}) before the next one")
        return self._rest()

    def _rest(self) -> Iterator[int]:
        epoch = self.epoch
        how = {"shuffle": self.shuffle, "drop_last": self.drop_last}
        yield from shard_indices(
            self.n, self.num_replicas, self.rank, seed=self.seed, epoch=epoch, start=self.consumed, **how
        )
        self._handed_out = self.epoch == epoch

    def advance(self, num_samples: int) -> None:
        """Tell that this rank has used that many more samples, and every other rank as many.

        Call it after each step, with the size of the batch. Ranks in data parallelism step together, so one rank's
        number stands for all: `consumed` grows by num_samples * N.

        Raises:
            ValueError: num_samples is negative, or more than this rank has left in this epoch.
        """
        if not 0 <= num_samples <= len(self):
            raise ValueError(
                f"advance({num_samples}): this rank has {len(self)} samples left in epoch {self.epoch}; give the "
                "number of samples in its own batch, once per step"
            )
        # The last samples of an epoch may be padding, which does not count.
        self.consumed = min(self.n, self.consumed + num_samples * self.num_replicas)
        self._loaded = False

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch, or stay where we are if it is this one.

        Raises:
            RuntimeError: all samples of this epoch were handed out and `advance` was never called: a saved state
                would have begun the epoch anew.
        """
        if epoch == self.epoch:
            return
        if self._handed_out and not self.consumed and len(self):
            raise RuntimeError("epoch done, but advance() was never called: call advance(len(batch)) after each step")
        self.epoch, self.consumed, self._handed_out, self._loaded = epoch, 0, False, False

    def state_dict(self) -> dict[str, Any]:
        """The place in training, as plain numbers, the same on every rank."""
        return {key: getattr(self, key) for key in _KEYS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved place. Seed and shuffle come from the state too: the order of the epoch depends on them.

        Load before the iteration begins; one that is under way keeps its samples.

        Raises:
            ValueError: the state lacks a key, or is that of a data set of another size.
        """
        if missing := [key for key in _KEYS if key not in state]:
            raise ValueError(f"this is no state of a ResumableSampler: it lacks {', '.join(missing)}")
        if state["n"] != self.n:
            raise ValueError(f"the state is of a data set of {state['n']} samples, this one has {self.n}")
        if not 0 <= state["consumed"] <= self.n:
            raise ValueError(f"consumed must be between 0 and {self.n}, got {state['consumed']}")
        for key in _KEYS:
            setattr(self, key, state[key])
        self._handed_out, self._loaded = False, True
