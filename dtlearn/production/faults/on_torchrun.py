"""torchrun's restart: its agent looks at its processes, and when one has ended it starts all of them again."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from dtlearn.runtime.launch import SCRIPT_VARIABLES, launch_command, start_guarded

from .plan import JobPlan
from .story import StoryLog

_PROGRAM = "from dtlearn.production.faults.job import main\n\nmain()\n"
# What the agent writes as soon as it has seen that a process ended.
_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
# torchrun hands the store of its rendezvous on to the ranks. After a restart they find the addresses of the dead there,
# and connect to nobody (pytorch issue 135712; seen with torch 2.13 and gloo). So each start gets a new store.
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
MONITOR_INTERVAL = 0.1  # seconds between two looks of the agent at its processes; torchrun's default


def restart_on_torchrun(
    plan: JobPlan, ranks: int, log: StoryLog, *, max_restarts: int = 1, timeout: float = 120.0
) -> str:
    """Run the job under `torchrun --max-restarts`, on this machine. Returns why it was given up, or "".

    The group's size stays: one node's torchrun starts as many processes as before.
    """
    script, plan_file = write_program(plan)
    command = launch_command(script, ranks, "torchrun", Path(plan.folder, "torchrun"))
    log("start", detail=f"{ranks} ranks")
    return follow_torchruns([[*with_restarts(command, max_restarts), str(plan_file)]], log, timeout)


def write_program(plan: JobPlan) -> tuple[Path, Path]:
    """The files of the script that every rank runs, and of its plan."""
    script, plan_file = Path(plan.folder, "rank.py"), Path(plan.folder, "plan.json")
    script.write_text(_PROGRAM)
    plan_file.write_text(plan.to_json())
    return script, plan_file


def with_restarts(command: Sequence[str], max_restarts: int) -> list[str]:
    """A torchrun command that restarts its processes so often."""
    at = command.index("torch.distributed.run") + 1
    options = ["--max-restarts", str(max_restarts), "--monitor-interval", str(MONITOR_INTERVAL)]
    return [*command[:at], *options, *command[at:]]


def follow_torchruns(
    commands: Sequence[Sequence[str]], log: StoryLog, timeout: float, while_running: Callable[[], None] | None = None
) -> str:
    """Run one torchrun per node until the first has ended, then end all. Returns why it failed, or "".

    `while_running` is called again and again meanwhile.
    """
    env = {**os.environ, **SCRIPT_VARIABLES, **NEW_STORE}
    launched = [start_guarded(list(command), env) for command in commands]
    tails: list[list[str]] = [[] for _ in launched]
    readers = []
    try:
        for node, process in enumerate(launched):
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                arguments = (pipe, tails[node], log if node == 0 else None)
                readers.append(threading.Thread(target=_read, args=arguments, daemon=True))
                readers[-1].start()
        until = time.monotonic() + timeout
        while launched[0].poll() is None and time.monotonic() < until:
            if while_running is not None:
                while_running()
            time.sleep(0.02)
        code = launched[0].poll()
    finally:
        _end(launched)
        for reader in readers:
            reader.join()
        _close(launched)
    if code is None:
        return f"the job did not end within {timeout:g} s"
    if code:
        return f"torchrun gave up with exit code {code}: {''.join(tails[0][-4:]).strip()[-400:]}"
    log("finished")
    return ""


def _read(pipe: IO[bytes], tail: list[str], log: StoryLog | None) -> None:
    """Keep the last lines, and note the one in which the agent says that a process has failed."""
    attempt = 0
    for line in pipe:
        text = line.decode(errors="replace")
        tail.append(text)
        del tail[:-40]
        if log is not None and (failed := _FAILED.search(text)):
            code, rank = int(failed[1]), int(failed[2])
            # Others that lost it may have been seen first: only a signal says for sure who failed by itself.
            log("noticed", attempt=attempt, by="launcher", about=rank if code < 0 else None, detail=f"exit code {code}")
            attempt += 1


def _end(launched: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close the lifelines: nothing that was started stays."""
    for process in launched:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
    for process in launched:
        process.wait()


def _close(launched: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in launched:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
