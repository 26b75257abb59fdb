"""Steps of one's own, and a meeting after every H of them: what all methods of this folder share."""

from __future__ import annotations

from math import isclose
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from dtlearn.sharing.wrapping.replicas import broadcast_module, require_same_model, require_wrapped

from ..own_values import all_alike, norms_of_ranks, squared_norm


class LocalSteps:
    """An optimizer that steps with this rank's gradients, and `synchronize` after every `period` of its steps.

        training = PeriodicAveraging(model, optimizer, period=8)
        for x, y in batches:  # of this rank
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            training.step()

    The optimizer stays the caller's: learning rate schedules, clipping and `zero_grad` are as ever. Its state is this
    rank's own and is never averaged.

    **Two levels.** A model in a DistributedDataParallel over a fast group steps with the mean of that group;
    `group` is then the slow group, of those ranks that have the same place in their fast groups, or all ranks.

    **Checkpoints.** Each rank saves its own model and its own `state_dict`. To go on, make this object first, which
    gives all ranks rank 0's model; then load this rank's model, then this state.

    **Communication**: at the start all-gathers of 16 and 8 bytes and a broadcast of the model from rank 0; at the first
    meeting an all-gather of 8 bytes. The rest is what `synchronize` says.

    Args:
        model: a bare one, or in a DistributedDataParallel over a fast group.
        optimizer: of this rank, for the model's parameters.
        period: H, local steps between two meetings.
        group: ranks that meet; None: all.

    Attributes:
        parameters: those that are trained.
        steps: local steps so far.

    Raises:
        ValueError: a period below 1, or this rank is not in the group.
        RuntimeError: the models of the ranks differ; or, later, a parameter is trained that was frozen at the start.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, period: int, *, group: dist.ProcessGroup | None = None
    ) -> None:
        if period < 1:
            raise ValueError(f"period must be 1 local step or more, got {period}")
        self.module: nn.Module = model.module if hasattr(model, "no_sync") else model  # type: ignore[assignment]
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(
                "expected a model with parameters that require gradients, but it has none: nothing to train"
            )
        require_same_model(self.module, group=group)
        broadcast_module(self.module, group=group)
        self.optimizer, self.period, self.group = optimizer, period, group
        self.steps = 0
        self._begun_at: torch.Tensor | None = norms_of_ranks(self.parameters, group=group)

    def step(self) -> bool:
        """One step of the optimizer; then, if it is time, a meeting. Returns whether there was one."""
        self.optimizer.step()
        self.steps += 1
        due = self.is_due()
        if due:
            self.meet()
        return due

    def is_due(self) -> bool:
        """Whether the ranks meet after the step that was just done."""
        return self.steps % self.period == 0

    def meet(self) -> None:
        """Synchronize now; every rank of the group has to call it."""
        self.check()
        self.synchronize()

    def check(self) -> None:
        """Whether the ranks may meet: every trained parameter is known, and the ranks differ."""
        require_wrapped(self.module, set(map(id, self.parameters)))
        self.require_own_steps()

    def synchronize(self) -> None:
        """What happens at a meeting."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """All of this rank's state but its model: every rank saves its own, and its own model beside it."""
        return {
            "world_size": dist.get_world_size(self.group),
            "rank": dist.get_rank(self.group),
            "steps": self.steps,
            "squared_norm": squared_norm(self.parameters).item(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same rank of as many ranks.

        Raises:
            ValueError: it is of another number of ranks, of another rank, or of another model than is loaded.
        """
        found = {name: state[name] for name in ("world_size", "rank")}
        here = {"world_size": dist.get_world_size(self.group), "rank": dist.get_rank(self.group)}
        if found != here:
            raise ValueError(
                f"expected the state of rank {here['rank']} of {here['world_size']}, but this is that of rank "
                f"{found['rank']} of {found['world_size']}: each rank steps with its own optimizer state. Go on with "
                "as many ranks, each with its own file; or begin with new optimizers from an averaged model"
            )
        norm = squared_norm(self.parameters).item()
        if not isclose(norm, state["squared_norm"], rel_tol=1e-6):  # another device adds up in another order
            raise ValueError(
                f"expected the model that this state was saved with, of squared norm {state['squared_norm']:.9g}, but "
                f"that of this one is {norm:.9g}: load this rank's own model first, after making this object, "
                "which gives all ranks the model of rank 0"
            )
        self.steps = state["steps"]
        self.optimizer.load_state_dict(state["optimizer"])

    def require_own_steps(self) -> None:
        """Check, at the first meeting, that the ranks have come by ways of their own.

        With a DistributedDataParallel that still synchronises over the same ranks, every rank takes the same steps: to
        average is then to change nothing, at the price of both.

        Raises:
            ValueError: all ranks bring the same parameters. Every rank raises it.
        """
        if self._begun_at is None:
            return
        norms = norms_of_ranks(self.parameters, group=self.group)  # (N,)
        if bool((norms == self._begun_at).all()):
            return  # nothing has been learnt yet: a loss scaler that still looks for its scale, say
        self._begun_at = None
        if all_alike(norms):
            raise ValueError(
                f"expected parameters that differ after {self.steps} local steps, but those of all {len(norms)} ranks "
                "are equal: either a DistributedDataParallel averages the gradients over these ranks already, then "
                "wrap the model over the fast group only, or not at all; or all ranks train on the same batches"
            )
