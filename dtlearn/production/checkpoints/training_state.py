"""All that a job needs to go on as if it had never stopped: to the last bit, if as many ranks go on.

What is missing shows late: without the optimizer's moments the loss jumps, without the sampler's place samples come
twice, without random numbers dropout differs, without residuals what was not yet sent is lost.

    state = TrainingState(model, sharded, optimizer, cuts, shared={"scheduler": scheduler, "sampler": sampler})
    notes = state.resume(checkpointer)          # None: begin anew
    ...
    state.step += 1
    state.save(checkpointer)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.gradient_compression import ErrorFeedback
from dtlearn.sharing.resharding import Box, Piece, whole_piece
from dtlearn.train.state import rng_state, seed_rank, set_rng_state
from dtlearn.zero import ShardedParameters

from .checkpointer import Checkpointer
from .elastic import merge_residuals, ranks_to_merge
from .format import CheckpointError, Manifest
from .layouts import MODEL, Cut, load_shards, shards_of, wanted_by
from .pieces import Shards

RESIDUAL = "residual."


class HasState(Protocol):
    """A scheduler, a scaler, a sampler: what has plain values to save."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


@dataclass
class TrainingState:
    """What changes while a job trains, on one of its ranks.

    **Communication**: that of `Checkpointer`; in ZeRO 1 and 2, loading gathers the parameters.
    **Memory**: loading, the rank's pieces once more.

    Attributes:
        model: of this rank, bare; its buffers, too, are saved.
        sharded: its parameters: `ShardedParameters.of_module(model)`, or of a stage of ZeRO.
        optimizer: over the pieces of `sharded`.
        cuts: by parameter, where it lies in the whole.
        shared: what is the same on all ranks, by name: {"scheduler": ..., "scaler": ..., "sampler": ...}.
        feedback: of gradient compression; its residuals are each rank's own.
        device: whose random numbers are saved beside those of the CPU.
        seed: for new random numbers, where another number of ranks goes on.
        step: updates made.
        group: ranks of the job; None: all.
    """

    model: nn.Module
    sharded: ShardedParameters
    optimizer: torch.optim.Optimizer
    cuts: Mapping[str, Cut]
    shared: Mapping[str, HasState] = field(default_factory=dict)
    feedback: ErrorFeedback | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0
    step: int = 0
    group: dist.ProcessGroup | None = None

    def __post_init__(self) -> None:
        ready = dist.is_initialized()
        self.rank = dist.get_rank(self.group) if ready else 0
        self.num_ranks = dist.get_world_size(self.group) if ready else 1

    def save(self, checkpointer: Checkpointer) -> bool:
        """Save all of it; all ranks call it.

        Returns, raises: as `Checkpointer.save`.
        """
        shards, options = shards_of(self.sharded, self.optimizer, self.cuts)
        plain = {name: part.state_dict() for name, part in self.shared.items()}
        return checkpointer.save(
            self.step,
            {**shards, **self._buffer_shards(), **self._residual_shards()},
            shared={"optimizer": options, **plain},
            own={"rng": rng_state(self.device)},
        )

    def resume(self, checkpointer: Checkpointer, *, step: int | None = None) -> list[str] | None:
        """Take up the newest checkpoint, or that of `step`; all ranks call it.

        Returns:
            What a person should know, a line each; None: there is no checkpoint.

        Raises:
            CheckpointError: as `Checkpointer.load`; or it lacks something that this job has.
        """
        loaded = checkpointer.load(self._wanted, step=step)
        if loaded is None:
            return None
        if missing := sorted({"optimizer", *self.shared} - set(loaded.shared)):
            raise CheckpointError(
                f"the checkpoint of step {loaded.step} has no {' and no '.join(missing)}: it is of another job"
            )
        load_shards(self.sharded, self.optimizer, self.cuts, loaded.tensors, loaded.shared["optimizer"])
        for name, part in self.shared.items():
            part.load_state_dict(loaded.shared[name])
        for name, buffer in self._buffers().items():
            buffer.copy_(loaded.tensors[MODEL + name].view(buffer.shape))
        self.step, notes = loaded.step, loaded.notes
        self._load_residuals(loaded.tensors, loaded.num_ranks)
        if loaded.own is not None:
            set_rng_state(loaded.own["rng"], self.device)
        else:
            seed_rank(self.seed, self.rank, self.step)
            notes.append(
                f"{loaded.num_ranks} ranks saved and {self.num_ranks} go on: random numbers (dropout) are new ones"
            )
        return notes

    def _wanted(self, manifest: Manifest) -> dict[str, Piece]:
        wanted = wanted_by(self.sharded, self.cuts, manifest)
        wanted.update({MODEL + name: whole_piece(buffer.shape) for name, buffer in self._buffers().items()})
        if self.feedback is not None:
            for name, stored in manifest.tensors.items():
                if name.startswith(RESIDUAL):
                    rows = ranks_to_merge(manifest.num_ranks, self.num_ranks, self.rank)
                    wanted[name] = _rows(stored.shape, rows)
        return wanted

    def _buffers(self) -> dict[str, torch.Tensor]:
        """The model's buffers, such as those of BatchNorm, without those that its state leaves out."""
        there = self.model.state_dict()
        return {name: buffer for name, buffer in self.model.named_buffers() if name in there}

    def _buffer_shards(self) -> dict[str, tuple[Piece, torch.Tensor]]:
        """The buffers to save: they are alike on all ranks, so only rank 0 has elements to save."""
        return {
            MODEL + name: (
                whole_piece(buffer.shape) if self.rank == 0 else Piece(tuple(buffer.shape), ()),
                buffer.detach().flatten(),
            )
            for name, buffer in self._buffers().items()
        }

    def _residual_shards(self) -> Shards:
        """The residuals of all ranks as one tensor, (N, n), of which each rank has its row."""
        if self.feedback is None:
            return {}
        kept = self.feedback.state_dict(self.model)["residuals"]
        return {
            RESIDUAL + name: (_rows((self.num_ranks, values.numel()), [self.rank]), values)
            for name, values in kept.items()
        }

    def _load_residuals(self, tensors: Mapping[str, torch.Tensor], num_saved: int) -> None:
        if self.feedback is None:
            return
        count = len(ranks_to_merge(num_saved, self.num_ranks, self.rank))
        kept = {}
        for name, values in tensors.items():
            if name.startswith(RESIDUAL) and count:  # otherwise this rank is a new one, and owes nothing
                rows = list(values.view(count, -1))
                kept[name.removeprefix(RESIDUAL)] = merge_residuals(rows, num_saved, self.num_ranks)
        self.feedback.load_state_dict({"residuals": kept}, self.model)


def _rows(shape: tuple[int, ...], rows: list[int]) -> Piece:
    width = shape[1]
    return Piece(shape, tuple(Box((row, 0), (row + 1, width), place * width) for place, row in enumerate(rows)))
