"""Random states for dropout: one that all ranks of the group share, and one of each rank's own.

A dropout mask belongs to a tensor, so it has to be divided as the tensor is. Shapes are (B, T, C); H heads; t ranks.

    replicated      (B, T, C)     every rank has the same elements, so all masks must be equal:
                                  with unequal ones the copies of one tensor are no longer copies
    divided         (B, H/t, T, T) attention's probabilities, a rank's own heads;
                    (B, T/t, C)   sequence parallelism; every rank has other elements, so the masks must be independent:
                                  with equal ones, heads (or tokens) of different ranks lose the same elements

So torch's default state is seeded with the same number on all ranks and serves replicated tensors. A tracker keeps a
second state, seeded with `seed + 2718 + rank`, and `fork()` puts it in the place of the default one for a while.

What this scheme cannot do: give the same masks for every t. With 1 rank a mask of all heads is drawn from one state,
with 2 ranks each half from another. So runs with dropout agree between different t in distribution, not in numbers;
to compare numbers, set dropout to 0.

Source: Megatron-LM, `core/tensor_parallel/random.py` (`CudaRNGStatesTracker`, `model_parallel_cuda_manual_seed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint

SPLIT_OFFSET = 2718  # Megatron's: no rank's own seed is the shared one


class RandomStateTracker:
    """The random state for split regions, of this rank.

        tracker = tensor_parallel_manual_seed(1234)
        with tracker.fork():
            probabilities = F.dropout(probabilities, p)   # (B, H/t, T, T): a mask of this rank's own
        y = F.dropout(output(y), p)                       # (B, T, C): the same mask on every rank

    **Communication**: none. **Memory**: one state: 5,056 bytes for the CPU, 16 for a GPU.

    Args:
        seed: of this rank's own state.
        device: whose default generator the masks are drawn from.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._is_forked = False
        before = default_state(self.device)
        seed_default(seed, self.device)
        self._state = default_state(self.device)
        set_default_state(before, self.device)

    @contextmanager
    def fork(self) -> Iterator[None]:
        """In this block random numbers come from this rank's own state.

        After the block the default state is what it was before: it does not matter to replicated tensors how many
        numbers a split region drew. The tracker's state goes on where the block ended.

        Raises:
            RuntimeError: inside a fork: the two blocks would draw the same numbers.
        """
        if self._is_forked:
            raise RuntimeError("fork() inside fork(): this rank's own state is in use; leave out one")
        before = default_state(self.device)
        set_default_state(self._state, self.device)
        self._is_forked = True
        try:
            yield
        finally:
            self._is_forked = False
            self._state = default_state(self.device)
            set_default_state(before, self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomStateTracker:
        """Itself: a copied model draws from the rank's one own state, as it does from the rank's default state."""
        return self

    def get_state(self) -> torch.Tensor:
        """A copy of this rank's own state, uint8: for a checkpoint, beside the default one."""
        return self._state.clone()

    def set_state(self, state: torch.Tensor) -> None:
        """Go on from a state of `get_state`.

        Raises:
            RuntimeError: in a fork, whose end would overwrite it.
        """
        if self._is_forked:
            raise RuntimeError("set_state() inside fork(): the end of the block would overwrite the state")
        self._state = state.clone()


def tensor_parallel_manual_seed(
    seed: int, *, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
) -> RandomStateTracker:
    """Seed the default state alike on all ranks of the group, and make the tracker of this rank's own.

    Replicas of the model, each a group, see other data, and may all take one seed (as Megatron's do) or seeds that are
    `group size` apart or more: with seed and seed + 1, rank 1 of one replica draws what rank 0 of the other draws.

    **Communication**: none. **Memory**: that of the tracker.

    Args:
        seed: the same on all ranks of the group.
        group: tensor-parallel ranks; None: all ranks.
        device: of the activations.
    """
    seed_default(seed, torch.device(device))
    return RandomStateTracker(seed + SPLIT_OFFSET + dist.get_rank(group), device)


def checkpoint(function: Callable[..., Any], *args: Any, tracker: RandomStateTracker, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, whose activations are computed again in backward, with the masks of the first pass.

    `torch.utils.checkpoint` restores torch's default states before the second pass, and cannot know of the tracker.
    Left alone, `fork()` goes on from where it is by then: other masks in split regions, and wrong gradients, without an
    error.

    **Communication**: none of its own. A collective in `function` runs again, up to the last one whose result
    backward needs: torch ends the second pass as soon as all kept tensors are there. A block without dropout thus
    repeats one of its two all-reduces, with dropout both.

    **Memory**: the tensors among the arguments, and two random states, until backward.

    Args:
        function: a module, or any function of the arguments and of parameters; it may fork the tracker.
        args, kwargs: its arguments.
        tracker: as used in `function`.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _Replay(tracker, tracker.get_state())

    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, context_fn=contexts, **kwargs)


class _Replay:
    """The tracker as it was at a moment, for a block. A class: with retain_graph torch enters it more than once."""

    def __init__(self, tracker: RandomStateTracker, state: torch.Tensor) -> None:
        self.tracker, self.state = tracker, state

    def __enter__(self) -> None:
        self.now = self.tracker.get_state()
        self.tracker.set_state(self.state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracker.set_state(self.now)


def default_state(device: torch.device) -> torch.Tensor:
    """A copy of the state of the device's default generator, uint8."""
    if device.type == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_default_state(state: torch.Tensor, device: torch.device) -> None:
    """Put the device's default generator into this state."""
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


def seed_default(seed: int, device: torch.device) -> None:
    """Seed the device's default generator, and no other."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        with torch.get_device_module(device).device(device):
            torch.get_device_module(device).manual_seed(seed)
