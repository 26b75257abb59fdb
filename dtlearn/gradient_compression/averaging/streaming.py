"""Streaming DiLoCo: one fragment of the model at a time, on its way while training goes on.

Source: Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch", arXiv
2501.18512, without its quantization. When which fragment is sent, and that the pseudo-gradient counts from
the outer parameters, is as in torchft's `DiLoCo` (`torchft/local_sgd.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from .diloco import DiLoCo, OuterOptimizer, outer_nesterov
from .mean import MeanInFlight, average_buffers


def strided_fragments(blocks: Sequence[nn.Module], num_fragments: int) -> list[list[nn.Parameter]]:
    """Every `num_fragments`-th block: fragment k has the parameters of blocks k, k + K, k + 2 K, ...

    Args:
        blocks: modules that hold the whole model together, in order: `[gpt.embedding, *gpt.blocks, gpt.head]`.

    Returns:
        The trained parameters of each fragment; a parameter of several blocks is in the first one's.

    Raises:
        ValueError: fewer blocks than fragments, or no fragment.
    """
    if not 1 <= num_fragments <= len(blocks):
        raise ValueError(f"num_fragments must be from 1 to {len(blocks)}, the number of blocks; got {num_fragments}")
    fragments: list[list[nn.Parameter]] = [[] for _ in range(num_fragments)]
    seen: set[int] = set()
    for number, block in enumerate(blocks):
        for p in block.parameters():
            if p.requires_grad and id(p) not in seen:
                seen.add(id(p))
                fragments[number % num_fragments].append(p)
    return fragments


class StreamingDiLoCo(DiLoCo):
    """DiLoCo in fragments: each is sent once in `period` steps, all at different ones; see `LocalSteps`.

    Fragment k of K leaves after the steps t with t mod H = H (k + 1) // K (the last one with 0), and the outer step is
    taken with it `overlap` steps later, which train on in the meantime. What they learn there is lost, but for a part,
    `mixing`. The peak of the link is a K-th of DiLoCo's; its sum is the same. With one fragment and no overlap it is
    DiLoCo to the last bit.

    **Communication** (n bytes of parameters): every `period` steps K all-reduces of n together, each of a fragment,
    begun at its step and waited for `overlap` steps later; and the buffers, at the end of a period.
    **Memory**: n for the outer parameters and n for their momentum, for good; 2 n / K for a fragment on its way.

    Args:
        fragments: the trained parameters, each in one fragment; see `strided_fragments`.
        overlap: tau, steps from sending to the outer step.
        mixing: alpha, the part of a rank's own parameters that stays when a fragment comes back; 0: nothing.

    Raises:
        ValueError: a trained parameter is in no fragment, or in two; more fragments than steps in a period; an overlap
            outside 0 to `period` - 1, or a mixing outside [0, 1).
    """

    def __init__(
        self,
        model: nn.Module,
        inner_optimizer: Optimizer,
        period: int,
        fragments: Sequence[Sequence[nn.Parameter]],
        *,
        overlap: int = 0,
        mixing: float = 0.0,
        outer_optimizer: OuterOptimizer = outer_nesterov,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(model, inner_optimizer, period, outer_optimizer=outer_optimizer, group=group)
        if not 0 <= overlap < period or not 0 <= mixing < 1:
            raise ValueError(
                f"overlap must be from 0 to period - 1 = {period - 1}, so that a fragment is back before it leaves "
                f"again; mixing must be in [0, 1); got {overlap} and {mixing}"
            )
        self.overlap, self.mixing = overlap, mixing
        self.fragments = self._places(fragments)
        # By fragment: the step of its outer step, and the mean; of a checkpoint one that has arrived.
        self._in_flight: dict[int, tuple[int, MeanInFlight | list[torch.Tensor]]] = {}

    def leaves_at(self, fragment: int) -> int:
        """The step of a period after which a fragment is sent, 1 to `period`."""
        return self.period * (fragment + 1) // len(self.fragments)

    def step(self) -> bool:
        """One inner step; then send the fragment whose turn it is, and take the outer step of one that is back.

        Returns:
            Whether there was an outer step.
        """
        self.optimizer.step()
        self.steps += 1
        for k, places in enumerate(self.fragments):
            if self.steps % self.period == self.leaves_at(k) % self.period:
                self.check()
                mean = MeanInFlight(self.pseudo_gradients(places), group=self.group)
                self._in_flight[k] = self.steps + self.overlap, mean
        back = [k for k, (due, _) in self._in_flight.items() if due == self.steps]
        for k in back:
            self._outer_step_of(k)
        if self.steps % self.period == 0:
            average_buffers(self.module, group=self.group)
        return bool(back)

    def _outer_step_of(self, fragment: int) -> None:
        _, mean = self._in_flight.pop(fragment)
        places = self.fragments[fragment]
        self.outer_step(places, mean.wait() if isinstance(mean, MeanInFlight) else mean)
        with torch.no_grad():
            for i in places:
                self.parameters[i].lerp_(self.outer_parameters[i], 1 - self.mixing)

    def synchronize(self) -> None:
        """Wait for all fragments that are on their way, and take their outer steps now; to end a training."""
        for fragment in sorted(self._in_flight):
            self._outer_step_of(fragment)

    def state_dict(self) -> dict[str, Any]:
        """As of `LocalSteps`, with the fragments that are on their way: it waits for them, and they stay on it."""
        self._in_flight = {
            k: (due, mean.wait() if isinstance(mean, MeanInFlight) else mean)
            for k, (due, mean) in self._in_flight.items()
        }
        return super().state_dict() | {"in_flight": self._in_flight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        device = self.parameters[0].device
        self._in_flight = {
            k: (due, [mean.to(device) for mean in means]) for k, (due, means) in state["in_flight"].items()
        }

    def _places(self, fragments: Sequence[Sequence[nn.Parameter]]) -> list[list[int]]:
        """The places of the fragments' parameters among the trained ones."""
        if not 1 <= len(fragments) <= self.period:
            raise ValueError(
                f"expected 1 to {self.period} fragments, so that each has a step of its own in a period; got "
                f"{len(fragments)}"
            )
        place_of = {id(p): i for i, p in enumerate(self.parameters)}
        names = {id(p): name for name, p in self.module.named_parameters()}
        for p in (p for fragment in fragments for p in fragment):
            if id(p) not in place_of:
                raise ValueError(
                    f"a fragment has {names.get(id(p), 'a parameter of another model')}, which is not trained"
                )
        places = [[place_of[id(p)] for p in fragment] for fragment in fragments]
        counts = Counter(i for own in places for i in own)
        if wrong := [i for i in range(len(self.parameters)) if counts[i] != 1]:
            name = names[id(self.parameters[wrong[0]])]
            raise ValueError(
                f"each trained parameter must be in one fragment, but {name} is in {counts[wrong[0]]}: it would be "
                "averaged never, or twice"
            )
        return places
