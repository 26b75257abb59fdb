"""The doctor's checks of the machine: cores, memory, folders, names. Each judges plain values, which tests can fake."""

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

from ...runtime.machine.memory import GIB
from .check import Line

# Measured: a rank that trains a small model holds 0.14 GiB, the agent 0.12, a notebook 0.2. The rest is for tensors.
_RANK_MEMORY, _BASE_MEMORY = GIB // 4, GIB // 2
_SLOW_NAME = 1.0  # seconds


def sensible_ranks(free: int) -> int:
    """How many ranks fit into that much memory, in bytes; at most 64."""
    return max(0, min(64, (free - _BASE_MEMORY) // _RANK_MEMORY))


def check_cores(cores: int, most_ranks: int) -> Line:
    if cores < 2:
        return Line("cores", "note", "1: ranks take turns", "Results are right, but nothing gets faster with ranks.")
    if cores < most_ranks:
        return Line("cores", "ok", f"{cores}: more ranks than that share them, so speed-up ends there")
    return Line("cores", "ok", f"{cores}")


def check_threads(environment: Mapping[str, str]) -> Line:
    text = environment.get("OMP_NUM_THREADS")
    if text is None:
        return Line("threads", "ok", "ranks use 1 each; OMP_NUM_THREADS is not set")
    if not text.isdigit() or int(text) < 1:
        advice = "Unset it, or set it to a number of 1 or more: export OMP_NUM_THREADS=1"
        return Line("threads", "note", f"OMP_NUM_THREADS={text!r} is not a number of threads; ranks use 1", advice)
    return Line("threads", "ok", f"ranks use 1 each; OMP_NUM_THREADS={text} counts outside ranks only")


def check_memory(memory: tuple[int, int] | None, most_ranks: int) -> Line:
    """`memory`: all and free, in bytes. `most_ranks`: what the largest chapter that is ready starts."""
    if memory is None:
        return Line("memory", "note", "this system does not say how much there is")
    total, free = memory
    room = sensible_ranks(free)
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free: room for {room} ranks"
    if room >= most_ranks:
        return Line("memory", "ok", text)
    need = (_BASE_MEMORY + most_ranks * _RANK_MEMORY) / GIB
    advice = f"Close other programs: {most_ranks} ranks and a notebook take about {need:.1f} GiB."
    return Line("memory", "note" if room >= 2 else "problem", text, advice)


def check_shared_memory(size: int | None) -> Line:
    """`size`: bytes of /dev/shm; None where there is no such folder."""
    if size is None:
        return Line("shared memory", "ok", "this system has no /dev/shm, and needs none")
    text = f"/dev/shm holds {size / GIB:.2f} GiB"
    if size >= GIB:
        return Line("shared memory", "ok", text)
    advice = "DataLoader workers and NCCL may fail with 'Bus error'. In Docker: docker run --shm-size=2g ..."
    return Line("shared memory", "note", text, advice)


def check_temp_folder() -> Line:
    """Write a file where every run keeps its private directory."""
    try:
        with tempfile.TemporaryDirectory(prefix="dtlearn-") as folder:
            Path(folder, "file").write_bytes(b"x")
            free = shutil.disk_usage(folder).free
            where = Path(folder).parent
    except OSError as error:
        advice = "Ranks meet through files there. Free some space, or set TMPDIR to a folder that you own."
        return Line("temporary folder", "problem", f"cannot be written: {error}", advice)
    text = f"{where} is writable, {free / GIB:.1f} GiB free"
    if free < GIB // 10:
        return Line("temporary folder", "note", text, "Free some space: a full folder ends runs half-way.")
    return Line("temporary folder", "ok", text)


def check_loopback(interfaces: list[str], chosen: str | None) -> Line:
    """`chosen`: GLOO_SOCKET_IFNAME. Ranks of one machine talk over the loopback interface unless it says otherwise."""
    if chosen and chosen not in interfaces:
        advice = f"Unset it (unset GLOO_SOCKET_IFNAME), or choose one of: {', '.join(interfaces)}"
        return Line("loopback", "problem", f"GLOO_SOCKET_IFNAME={chosen}: there is no such interface", advice)
    if not chosen and not {"lo", "lo0"} & set(interfaces):
        return Line("loopback", "problem", "there is no interface lo", "sudo ip link set lo up")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=2).close()
    except OSError as error:
        advice = "Ranks talk to each other over 127.0.0.1: sudo ip link set lo up, and let the firewall pass it."
        return Line("loopback", "problem", f"127.0.0.1 does not answer: {error}", advice)
    return Line("loopback", "ok", f"127.0.0.1 answers; ranks talk over {chosen or 'it'}")


def check_host_name(name: str, seconds: float | None, most: float) -> Line:
    """`seconds`: what looking up `name` took; None: longer than `most`."""
    if seconds is not None and seconds <= _SLOW_NAME:
        return Line("host name", "ok", f"{name} is looked up in {seconds:.2f} s")
    took = f"more than {most:g} s" if seconds is None else f"{seconds:.1f} s"
    advice = f"torchrun and TCPStore stall that long at each start; cells do not. In /etc/hosts: 127.0.0.1 {name}"
    return Line("host name", "note", f"looking up {name} takes {took}", advice)


def check_other_ranks(table: dict[int, tuple[int, str]], own: int) -> Line:
    """Ranks of other programs, and ranks that lost theirs. `own`: pid of this process's own agent."""
    name = "other ranks"
    # What was forked from an agent still shows the agent's command line: the reapers of its runs, and their ranks.
    ours = {pid: parent for pid, (parent, line) in table.items() if "dtlearn.runtime.agent.server" in line}
    agents = {pid: parent for pid, parent in ours.items() if parent not in ours and pid != own}
    reapers = {pid for pid, parent in ours.items() if parent in agents}
    ranks = [pid for pid, parent in ours.items() if parent in reapers]
    stray = sorted(pid for pid, parent in agents.items() if parent == 1)
    if stray:
        advice = f"If no program of yours uses them any more: kill {' '.join(map(str, stray))}"
        return Line(name, "note", f"{len(stray)} processes have lost the program that started them", advice)
    if ranks:
        return Line(name, "ok", f"{len(ranks)} ranks of other notebooks or programs run now, and share the cores")
    return Line(name, "ok", "none are running, none were left behind")


def own_processes() -> dict[int, tuple[int, str]]:
    """{pid: (parent's pid, command line)} of the processes that this user may look at."""
    processes = (process.info for process in psutil.process_iter(["pid", "ppid", "cmdline", "uids"]))
    own = [info for info in processes if info["uids"] and info["uids"].real == os.getuid()]
    return {info["pid"]: (info["ppid"], " ".join(info["cmdline"] or [])) for info in own}
