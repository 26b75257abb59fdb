"""What learners' own code does to the default group of a rank, which dtlearn has made and ends.

Public scripts begin with `init_process_group` and end with `destroy_process_group`. Pasted into a cell, the first is
once too often and the second leaves the cells behind it without a group; both are told where they happen. A script that
ends our group and makes its own, once or ten times, is right: its ranks meet in a store of the run, under a name that
no group had before. With torch's own way they would meet the dead of the last time, at the same address.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlparse

from ..recording.call_site import nearest_line
from .group import RankGroup

_ONCE_TOO_OFTEN = (
    ": dtlearn has made the group of these ranks. Leave this line out here; a script that torchrun starts needs it, "
    "and a function of run_ranks(..., init_group=False)"
)
_ANEW = "dist.init_process_group('gloo') makes a group anew, and so does %world restart"


class OwnGroups:
    """Follows the calls on `torch.distributed` that make and end the default group.

    Args:
        group: how dtlearn joins it on this rank.
        place: where the code is that runs now, such as "cell [3]"; "" in a run of one function.
    """

    def __init__(self, group: RankGroup, place: Callable[[], str] = lambda: "") -> None:
        self.ended = ""  # where learners' code ended the default group; "" if there is one
        self._said = ""
        self._group, self._place, self._pid = group, place, os.getpid()
        self._stores = 0  # that groups of learners' have met in
        self._generation = 0  # of dtlearn's group, to which that number belongs

    def follow(self) -> None:
        """Put what follows the calls in place."""
        c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
        for name, make in {
            "init_process_group": self._init,
            "destroy_process_group": self._destroy,
            "_get_default_group": self._default_group,
        }.items():
            if original := getattr(c10d, name, None):
                wrapped = make(original)
                for module in (c10d, sys.modules["torch.distributed"]):
                    if hasattr(module, name):
                        setattr(module, name, wrapped)
        handlers = getattr(sys.modules["torch.distributed.rendezvous"], "_rendezvous_handlers", {})
        if "env" in handlers:
            handlers["env"] = self._meet(handlers["env"])

    def note(self) -> str:
        """What a cell that has ended the group says at its end, once; "" if there is nothing to say."""
        before, self._said = self._said, self.ended
        if not self.ended or self.ended == before:
            return ""
        return (
            f"{self.ended}: destroy_process_group() has ended the group that dtlearn had made, and the cells that "
            f"follow have none. Leave the line out here, as dtlearn ends groups itself. {_ANEW}."
        )

    def _init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            import torch.distributed as dist

            there = dist.is_initialized()
            try:
                result = original(*args, **kwargs)
            except ValueError as error:
                if there and not self._group.at_work:
                    error.args = (str(error).rstrip("!") + _ONCE_TOO_OFTEN,)
                raise
            self.ended = ""
            return result

        return init_process_group

    def _destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            import torch.distributed as dist

            result = original(*args, **kwargs)
            if not (self._group.at_work or dist.is_initialized()):
                line, place = nearest_line(), self._place()
                self.ended = f"line {line}" + (f" of {place}" if place else "")
            return result

        return destroy_process_group

    def _default_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _get_default_group() -> Any:
            try:
                return original()
            except ValueError as error:
                if self.ended:
                    error.args = (f"there is no group: destroy_process_group() has ended it, {self.ended}. {_ANEW}",)
                raise

        return _get_default_group

    def _meet(self, original: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        """torch's way to find the others by the environment, in a store of this run if it is about the ranks of it."""

        def meet(url: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
            spec, asked = self._group.spec, dict(parse_qsl(urlparse(url).query))
            who = asked.get("rank", os.environ.get("RANK")), asked.get("world_size", os.environ.get("WORLD_SIZE"))
            if os.getpid() != self._pid or who != (str(spec.rank), str(spec.world_size)):
                yield from original(url, *args, **kwargs)
                return
            if self._generation != self._group.generation:  # ranks that are out of step count from here again
                self._generation, self._stores = self._group.generation, 0
            self._stores += 1
            yield self._group.store(f"own-{self._generation}-{self._stores}"), spec.rank, spec.world_size

        return meet
