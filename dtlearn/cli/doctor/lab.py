"""`dtlearn doctor --lab lab.toml`: examines the machines of a lab, and the network between them."""

import contextlib
import ipaddress
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...runtime.errors import DtlearnError, LaunchError
from ...runtime.lab.config import Lab, read_lab
from ...runtime.lab.head.agent import LabAgent
from ...runtime.lab.head.members import Members, software
from ...runtime.lab.head.port import JoinedNode
from ...runtime.words import first_line, ranks_text
from . import group, nodes
from .check import Line, as_json, attempt, last_line, table, terminal_width
from .machine import check_shared_memory


@dataclass(frozen=True)
class Section:
    """What was found on one machine, or of all together."""

    title: str
    checks: tuple[Line, ...]


@dataclass(frozen=True)
class LabReport:
    """All that was found: of the head, of each node, of all of them together, and the seconds that it took."""

    lab: str  # the file, and how many machines and ranks it has
    sections: tuple[Section, ...]
    seconds: float

    @property
    def problems(self) -> list[str]:
        """What has to be put right, "section: check"."""
        return [f"{s.title}: {c.name}" for s in self.sections for c in s.checks if c.state == "problem"]


def run(path: Path, to_json: bool) -> int:
    """Examine, print, and return 1 if something stops the lab from working. Raises ValueError for a wrong file."""
    report = examine(read_lab(path), lambda text: print(text, file=sys.stderr, flush=True))
    print(as_json(report, not report.problems) if to_json else format_report(report, terminal_width()))
    return 1 if report.problems else 0


def examine(lab: Lab, say: Callable[[str], None]) -> LabReport:
    """Call the nodes, look at each, let their ranks talk, and send them home.

    `say` is told what a person has to type, and for whom we wait.
    """
    begun = time.monotonic()
    count = f"{len(lab.nodes)} node{'s' * (len(lab.nodes) > 1)}, {lab.size} rank{'s' * (lab.size > 1)}"
    try:
        members = Members(lab, say)
    except LaunchError as error:
        advice = f"`dtlearn lab-token {lab.head.token_file}` makes a new token; `ip -4 addr` lists addresses."
        head = Section("head", (Line("listens", "problem", str(error), advice),))
        return LabReport(f"{lab.path}: {count}", (head,), time.monotonic() - begun)
    with contextlib.closing(LabAgent(lab, say, members)) as agent:
        absent = members.call()
        with ThreadPoolExecutor(len(lab.nodes)) as pool:
            of_nodes = list(pool.map(partial(_node, lab, members, absent), range(len(lab.nodes))))
        joined = [p for n in lab.nodes if (p := members.port.nodes.get(n.host)) is not None]
        head, together = Section("head", _head(lab, members)), Section("all nodes", _together(lab, agent, joined))
    return LabReport(f"{lab.path}: {count}", (head, *of_nodes, together), time.monotonic() - begun)


def format_report(report: LabReport, width: int = 120) -> str:
    """The report as tables for people, and what to do below them."""
    lines = [report.lab]
    for section in report.sections:
        lines += ["", section.title, *table(section.checks, width)]
    return "\n".join([*lines, "", last_line("; ".join(report.problems), report.seconds)])


def _head(lab: Lab, members: Members) -> tuple[Line, ...]:
    own = ", ".join(f"{name} {version}" for name, version in sorted(software().items()))
    checks = [Line("software", "ok", own)]
    text = f"{members.port.address}, for who has {lab.head.token_file}"
    if ipaddress.ip_address(lab.head.address).is_loopback and _far(lab):
        advice = "Other machines cannot reach it: `address` has to be this machine's own in their network (ip -4 addr)."
        return (*checks, Line("listens", "note", f"{text}: the loopback", advice))
    return (*checks, Line("listens", "ok", text))


def _node(lab: Lab, members: Members, absent: dict[str, str], number: int) -> Section:
    """What is found on one node. It may be called for several nodes at once."""
    config, host = lab.nodes[number], lab.nodes[number].host
    title = f"{host} ({ranks_text(lab.ranks_of(number))})"
    command = members.command_to_type(config)
    if (node := members.port.nodes.get(host)) is None:
        return Section(title, (nodes.check_absent(config, absent.get(host, f"{host} left"), command),))
    try:
        facts: dict[str, Any] = members.loaded(number).ask({"do": "look"})["answer"]
        wall = (facts["time_ns"] - time.time_ns()) / 1e9  # by how many seconds its wall clock is ahead of ours
    except DtlearnError as error:  # it answered the greeting, and then no more
        return Section(title, (nodes.check_absent(config, first_line(error), command),))
    said, far = node.said, _far(lab)
    checks = (
        attempt("joined", nodes.check_joined, config, said, node.within_ns),
        attempt("software", nodes.check_software, said["software"]),
        attempt("interface", nodes.check_network, said, far),
        attempt("host name", nodes.check_name, facts, said["interface"], far),
        attempt("cores", nodes.check_cores, config, said["cores"]),
        attempt("memory", nodes.check_memory, config.ranks, facts["memory"]),
        attempt("shared memory", check_shared_memory, facts["shared_memory"]),
        attempt("GPUs", nodes.check_gpus, config, node.loaded.result(), facts["gpus"], facts["visible"]),
        attempt("clock", nodes.check_clock, node.within_ns, wall),
    )
    return Section(title, checks)


def _far(lab: Lab) -> bool:
    return any(node.start != "local" for node in lab.nodes)


def _together(lab: Lab, agent: LabAgent, joined: list[JoinedNode]) -> tuple[Line, ...]:
    checks = [attempt("reach each other", group.check_mesh, joined)] if joined else []
    if len(joined) < len(lab.nodes):
        here = f"not tried: {len(joined)} of {len(lab.nodes)} nodes are here"
        return (*checks, Line("all-reduce", "note", here, "First put right what stands above."))
    if checks[0].state == "problem":
        return (*checks, Line("all-reduce", "note", "not tried: it would hang", "First put right what stands above."))
    return (*checks, *group.try_ranks(agent))
