"""The ranks behind this notebook: one world per notebook kernel."""

import os

from ..runtime.agent.client import Agent, get_agent
from ..runtime.device import default_size
from ..runtime.errors import DtlearnError
from ..runtime.lab.config import read_lab
from ..runtime.lab.head.agent import LabAgent
from ..runtime.link.link import Link
from ..runtime.world.world import World

_current: World | None = None


def world(world_size: int | str | os.PathLike[str], *, device: str = "auto", link: Link | None = None) -> World:
    """Start the ranks that `%%ranks` cells of this notebook run on. Ranks started earlier are ended.

    Args:
        world_size: number of ranks, 1 to 64, on this machine; or the path of a `lab.toml`: ranks on several.
        device: "auto" (NCCL if every rank has a GPU, otherwise gloo on CPU), "cpu" or "cuda".
        link: emulate this interconnect between the ranks: see `dtlearn.Link`. Later: `world.link = ...`.

    Returns:
        The world; its `push`, `gather` and `run` exchange values with the ranks.

    Raises:
        ValueError: a wrong number of ranks, device or link, or a mistake in the file.
        LaunchError: the ranks could not be started.
    """
    global _current
    agent: Agent | None = None
    if isinstance(world_size, str | os.PathLike):
        lab = read_lab(world_size)
        agent, world_size = LabAgent(lab), lab.size
    (agent or get_agent()).place(world_size, device, link)  # what cannot be started must not cost the ranks that exist
    if _current is not None and _current.running:
        print(f"the {_current.size} ranks started earlier were ended, and their variables with them")
        _current.stop()
    _current = World(world_size, device, link, agent)
    return _current


def current_world() -> World:
    """The notebook's ranks. Starts them if there are none. Raises DtlearnError if they were stopped."""
    if _current is None:
        size = default_size()
        started = world(size)
        print(f"started {started}; choose the number yourself with dtlearn.world(n)")
        return started
    if not _current.running:
        raise DtlearnError("the ranks were stopped; start them with `%world restart` or `dtlearn.world(n)`")
    return _current


def last_world() -> World | None:
    """The notebook's ranks, running or stopped; None if none were ever started."""
    return _current
