"""Groups of one job: some ranks train, some evaluate, some serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.distributed as dist

Role = Literal["training", "evaluation", "serving"]
ROLES: tuple[Role, ...] = ("training", "evaluation", "serving")


@dataclass(frozen=True)
class RankRoles:
    """How many ranks have each role; those that train come first.

    Attributes:
        training, evaluation, serving: ranks; at least one trains.

    Raises:
        ValueError: no rank trains, or fewer than none have another role.
    """

    training: int = 2
    evaluation: int = 1
    serving: int = 1

    def __post_init__(self) -> None:
        if self.training < 1 or min(self.evaluation, self.serving) < 0:
            raise ValueError(
                "at least one rank trains, and none or more have the other roles; got "
                f"training={self.training}, evaluation={self.evaluation}, serving={self.serving}"
            )

    @property
    def world_size(self) -> int:
        """All ranks of the job."""
        return self.training + self.evaluation + self.serving

    def ranks(self, role: Role) -> range:
        """The ranks that have a role."""
        start = sum(getattr(self, other) for other in ROLES[: ROLES.index(role)])
        return range(start, start + getattr(self, role))

    def role_of(self, rank: int) -> Role:
        """The role of a rank. Raises ValueError if there is no such rank."""
        for role in ROLES:
            if rank in self.ranks(role):
                return role
        raise ValueError(f"the job has ranks 0 to {self.world_size - 1}; got rank {rank}")

    def make_groups(self) -> dict[Role, dist.ProcessGroup]:
        """This rank's group, by its role: {"training": ...}. Every process of the job calls it.

        **Communication**: `dist.new_group` for each role that has ranks; all processes make all groups, in one order.
        **Memory**: what a backend keeps for the group.

        Raises:
            ValueError: the job has another number of ranks.
        """
        if dist.get_world_size() != self.world_size:
            raise ValueError(f"the roles are for {self.world_size} ranks, and the job has {dist.get_world_size()}")
        mine = dict[Role, dist.ProcessGroup]()
        for role in ROLES:
            if ranks := list(self.ranks(role)):
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    mine[role] = group
        return mine
