"""`dtlearn doctor`: what works on this machine, which chapters run here, and what to fix."""

import argparse
import contextlib
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ... import __version__
from ...course import Chapter, Course, load_course
from ...runtime.errors import DtlearnError
from ...runtime.lab.facts import HostNameLookUp, query_gpus, shared_memory_size
from ...runtime.machine import isolation
from ...runtime.machine.cores import num_cores
from ...runtime.machine.memory import memory as machine_memory
from ...runtime.machine.patience import TO_LOOK_UP_A_NAME
from ..arguments import add_example_parser
from ..jupyterlab import installation_problem
from . import machine, software
from .check import Line, as_json, attempt, last_line, table, terminal_width
from .machine import sensible_ranks


@dataclass(frozen=True)
class Outlook:
    """Whether a chapter, which starts `ranks` ranks at the most, runs on this machine, and if not, for which reason."""

    slug: str
    ranks: int
    runs: bool
    reason: str


@dataclass(frozen=True)
class MachineReport:
    """All that the doctor found, of the machine and of the chapters that are ready, and the seconds that it took."""

    checks: tuple[Line, ...]
    chapters: tuple[Outlook, ...]
    num_planned: int
    seconds: float

    @property
    def ok(self) -> bool:
        """No problem, and every chapter that is ready runs here."""
        return all(c.state != "problem" for c in self.checks) and all(c.runs for c in self.chapters)


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands,
        "doctor",
        "Check this machine: what works, which chapters run here, what to fix. Takes a few seconds.",
        "dtlearn doctor --json > this_machine.json     for whoever looks after many machines",
        run,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--lab", type=Path, metavar="LAB.TOML", help="examine the machines of a lab, and their network")


def run(options: argparse.Namespace) -> int:
    """Check, print, and return 1 if something stops chapters from running."""
    if options.lab is not None:
        from . import lab  # with all that talks to nodes: a third of what a command loads

        return lab.run(options.lab, options.json)
    report = examine()
    if options.json:
        where = {"system": platform.platform(), "host": platform.node(), "cores": num_cores()}
        print(as_json(report, report.ok, machine=where))
    else:
        print(f"dtlearn {__version__} on {platform.system()} {platform.release()}, {platform.machine()}\n")
        print(format_report(report, terminal_width()))
    return 0 if report.ok else 1


def examine() -> MachineReport:
    """Run all checks. Nothing of them stays behind."""
    begun = time.monotonic()
    course, course_check = _read_course()
    chapters = [c for c in course.chapters if c.ready] if course else []
    most = max((c.ranks for c in chapters), default=4)
    memory = machine_memory()
    # What takes long starts first and is heard last.
    host = HostNameLookUp()
    with software.ask_torch() as torch_process:
        early = [
            attempt("Python", software.check_python, sys.version_info[:3]),
            attempt("packages", software.check_this_installation, course.root if course else None),
            attempt("JupyterLab", lambda: software.check_jupyterlab(installation_problem())),
            attempt("cores", machine.check_cores, num_cores(), most),
            attempt("threads", machine.check_threads, os.environ),
            attempt("memory", machine.check_memory, memory, most),
            attempt("shared memory", machine.check_shared_memory, shared_memory_size()),
            attempt("temporary folder", machine.check_temp_folder),
            attempt(
                "loopback",
                lambda: machine.check_loopback(list(psutil.net_if_addrs()), os.environ.get("GLOO_SOCKET_IFNAME")),
            ),
        ]
        facts = software.hear_torch(torch_process)
    torch_checks, ranks_checks = [attempt("torch", software.check_torch, facts)], list[Line]()
    if not facts.error:
        torch_checks.append(attempt("gloo", software.check_gloo, facts))
        ranks_checks = _ranks_checks(facts, [*early, *torch_checks], most, memory)
    late = [
        attempt("host name", machine.check_host_name, host.name, host.seconds(TO_LOOK_UP_A_NAME), TO_LOOK_UP_A_NAME),
        attempt("Chromium", software.check_browser, software.find_chromium()),
        attempt("DeepSpeed", software.check_deepspeed),
    ]
    checks = (early[0], *torch_checks, *early[1:], *ranks_checks, *late, *course_check)
    room = sensible_ranks(memory[1]) if memory else 64
    outlooks = tuple(outlook(chapter, checks, room) for chapter in chapters)
    num_planned = len(course.chapters) - len(chapters) if course else 0
    return MachineReport(checks, outlooks, num_planned, time.monotonic() - begun)


def outlook(chapter: Chapter, checks: tuple[Line, ...], room: int) -> Outlook:
    """Whether a chapter runs, given what was found and how many ranks fit into memory."""
    problems = [c.name for c in checks if c.state == "problem"]
    if problems:
        reason = f"first put right: {', '.join(problems)}"
    elif room < chapter.ranks:
        reason = f"it starts {chapter.ranks} ranks, and there is memory for {room}"
    else:
        reason = ""
    return Outlook(chapter.slug, chapter.ranks, not reason, reason)


def format_report(report: MachineReport, width: int = 120) -> str:
    """The report as a table for people, with the chapters and what to do below it."""
    lines = [*table(report.checks, width), ""]
    for chapter in report.chapters:
        yes, no = f"runs here, with up to {chapter.ranks} ranks", f"does NOT run here: {chapter.reason}"
        lines.append(f"{chapter.slug}: {yes if chapter.runs else no}")
    if report.num_planned:
        lines.append(f"{report.num_planned} more chapters are planned.")
    wrong = ", ".join(c.name for c in report.checks if c.state == "problem")
    return "\n".join([*lines, last_line(wrong, report.seconds, report.ok)])


def _read_course() -> tuple[Course | None, list[Line]]:
    try:
        return load_course(), []
    except ValueError as error:
        return None, [Line("course", "problem", str(error), "cd into the folder that you cloned")]


def _ranks_checks(
    facts: software.TorchFacts, before: list[Line], most_ranks: int, memory: tuple[int, int] | None
) -> list[Line]:
    """Checks with an agent. Ranks are started only if what was found before lets them."""
    from ...runtime.agent.client import get_agent
    from . import ranks as r

    with contextlib.closing(get_agent()) as agent:
        try:
            hello = agent.hello()
        except DtlearnError:
            advice = "Run any course cell: its error has the last words of that process. `make lab` may put it right."
            return [Line("start of ranks", "problem", "the process that starts ranks does not come up", advice)]
        num_gpus, visible = int(hello["num_gpus"]), os.environ.get("CUDA_VISIBLE_DEVICES")
        checks = [
            attempt("NCCL", software.check_nccl, facts, num_gpus),
            attempt("GPUs", lambda: r.check_gpus(num_gpus, query_gpus(), facts, visible)),
            attempt("device rule", r.check_placement, num_gpus),
            attempt("start of ranks", r.check_start, hello),
            attempt("isolation", lambda: Line("isolation", "ok", str(isolation.probe()))),  # for grading others' code
            attempt("limits", r.check_limits, most_ranks, memory[1] if memory else None),
            attempt("other ranks", lambda: machine.check_other_ranks(machine.own_processes(), agent.pid)),
        ]
        if all(c.state != "problem" for c in [*before, *checks]):
            checks.append(attempt("all-reduce", r.try_all_reduce))
            if checks[-1].state != "problem":
                checks.append(attempt("cells on ranks", r.try_cells))
        return checks
