"""Starts ranks: what they are told, and the ends of their lines."""

import dataclasses
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..device import Placement
from ..errors import LaunchError
from ..machine.isolation import Isolation
from ..machine.limits import Limits, check_room, default_limits
from ..output import BoundedText
from ..rank.spec import RankOnNode
from .client import Agent
from .collector import Collector, RankState


def start_ranks(
    agent: Agent,
    kind: str,
    placement: Placement,
    run_dir: Path,
    group_timeout: float,
    ranks: list[int] | None = None,
    isolation: Isolation | None = None,
    limits: Limits | None = None,
) -> Collector:
    """Start ranks of a placement.

    Args:
        kind, run_dir, group_timeout: see `RankSpec`.
        placement: of the whole world.
        ranks: which of them; None: all.
        isolation, limits: how they are shut in, and what each may use; None: level 1, and `default_limits`.

    Raises:
        LaunchError: they could not be started: too little memory, or a level of isolation that is refused here.
    """
    ranks = list(range(len(placement.devices))) if ranks is None else ranks
    isolation = isolation or Isolation()
    free = agent.free_memory()
    if isolation.level == 2 and kind != "run":
        raise ValueError("ranks behind notebook cells have isolation level 0 or 1: a notebook has to reach them")
    for folder in isolation.writable:
        if not os.path.isdir(folder):
            raise ValueError(f"the ranks may write to {folder!r}, which is no folder")
    check_room(len(ranks), free)
    limits = limits or default_limits(len(ranks), free)
    environment = _environment(isolation)
    common = {
        "kind": kind,
        "world_size": len(placement.devices),
        "backend": placement.backend,
        "run_dir": str(run_dir),
        "env": environment,
        "cwd": _working_directory() if isolation.shown is None else environment["TMPDIR"],
        "sys_path": [p or os.getcwd() for p in sys.path],
        "group_timeout": group_timeout,
        "limits": dataclasses.asdict(limits),
        "isolation": dataclasses.asdict(isolation),
    }
    values = [
        {"rank": r, "device": placement.devices[r], "node": vars(RankOnNode.alone(r, len(placement.devices)))}
        for r in ranks  # a lab says itself where they are
    ]
    events, started = start_with_lines(agent, common, values)
    states = [RankState(channel, output, pid, BoundedText(limits.output)) for pid, channel, output in started]
    return Collector(states, events, limits, agent.patience)


def start_with_lines(
    agent: Agent, common: dict[str, Any], ranks: list[dict[str, Any]]
) -> tuple[int, list[tuple[int, socket.socket, int]]]:
    """Start ranks, see `Agent.start`, with a channel and an output each.

    Returns where their deaths are reported, and of each rank its handle and our ends of its channel and its output.
    They are the caller's to close; if the ranks cannot be started, all ends are closed here.
    """
    events, events_there = os.pipe()
    ours, theirs = [], [events_there]
    for _ in ranks:
        channel, channel_there = socket.socketpair()
        output, output_there = os.pipe()
        ours.append((channel, output))
        theirs += [channel_there.detach(), output_there]
    try:
        pids = agent.start(common, ranks, theirs)
    except BaseException:
        for channel, output in ours:
            channel.close()
            os.close(output)
        os.close(events)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    return events, [(pid, *ends) for pid, ends in zip(pids, ours, strict=True)]


def _environment(isolation: Isolation) -> dict[str, str]:
    """This process's; at level 2 nothing but temporary files can be written, also by what ranks themselves use."""
    if isolation.level < 2:
        return dict(os.environ)
    temporary = tempfile.gettempdir()
    return {**os.environ, "TMPDIR": temporary, "HOME": temporary}


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise LaunchError("the current folder was deleted; change to another one and try again") from error
