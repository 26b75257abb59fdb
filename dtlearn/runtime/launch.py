"""One-shot runs of a script under torchrun or accelerate, as on a lab machine, with output by rank."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from .cell import Sink
from .device import check_world_size
from .errors import Failure, RankError, RanksTimeout
from .run import run_directory

_TEE = re.compile(
    rb"^\[[\w.]+?(\d+)\]:(.*)", re.DOTALL
)  # how `torchrun --tee` marks a line of local rank 0: [default0]:
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)


def launch_script(
    source: str,
    num_processes: int,
    *,
    launcher: str = "torchrun",
    path: Path | None = None,
    args: list[str] | None = None,
    timeout: float = 300.0,
    sink: Sink,
) -> None:
    """Write `source` to a file and run it on `num_processes` new processes of this machine.

    Args:
        source: the script's text.
        num_processes: processes to start.
        launcher: "torchrun" or "accelerate".
        path: where to keep the script; None: a temporary file.
        args: the script's arguments.
        timeout: seconds, after which everything is ended.
        sink: receives the lines of each rank.

    Raises:
        ValueError: a wrong number of processes.
        RankError: a process failed; the message has the first failing rank's own traceback.
        RanksTimeout: the time was up.
    """
    size = check_world_size(num_processes)
    with run_directory() as run_dir:
        script = path or run_dir / "script.py"
        script.write_text(source)
        command = launch_command(script, size, launcher, run_dir) + list(args or [])
        _follow(command, size, timeout, sink)


def launch_command(script: Path, size: int, launcher: str, log_dir: Path) -> list[str]:
    """The command line that starts `size` processes of `script`."""
    if launcher == "torchrun":
        # An explicit address and port 0: no look-up of the host name (slow without DNS), no port to collide with.
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(size)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
            *("--tee", "3", "--log-dir", str(log_dir / "logs"), str(script)),
        ]
    if launcher == "accelerate":
        return [
            *(sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(size)),
            *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", str(script)),
        ]
    raise ValueError(f"launcher must be torchrun or accelerate; got {launcher!r}")


def _follow(command: list[str], size: int, timeout: float, sink: Sink) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "dtlearn.runtime.guard", *command],
        stdin=subprocess.PIPE,  # the guard's lifeline: when we end, it closes
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=env,
    )
    assert process.stdout is not None and process.stdin is not None
    deadline = time.monotonic() + timeout
    recent: dict[int, deque[str]] = {r: deque(maxlen=60) for r in range(-1, size)}  # -1: the launcher itself
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    os.set_blocking(process.stdout.fileno(), False)
    rest = b""
    try:
        while time.monotonic() < deadline:
            if selector.select(0.05):
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _pass_on(line + b"\n", recent, sink)
            sink.tick()
        else:
            raise RanksTimeout(f"the script did not finish within {timeout:g} s; everything it started was ended")
    finally:
        process.stdin.close()
        process.stdout.close()
        selector.close()
        code = process.wait()
    if code:
        raise _failure(code, recent)


def _pass_on(line: bytes, recent: dict[int, deque[str]], sink: Sink) -> None:
    marked = _TEE.match(line)
    rank = int(marked[1]) if marked else -1
    text = (marked[2] if marked else line).decode(errors="replace")
    if rank not in recent:
        rank = -1
    recent[rank].append(text)
    if rank >= 0:
        sink.publish(rank, {"msg_type": "stream", "content": {"name": "stdout", "text": text}})


def _failure(code: int, recent: dict[int, deque[str]]) -> RankError:
    """The error of a failed launch: the rank that the launcher names as the first, with its last lines."""
    said = "".join(recent[-1])
    cause = _ROOT_CAUSE.search(said)
    rank = int(cause[1]) if cause else -1
    lines = "".join(recent.get(rank, recent[-1])).rstrip()
    start = lines.rfind("Traceback (most recent call last)")
    shown = lines[start:] if start >= 0 else lines
    who = f"rank {rank} failed first" if rank >= 0 else "the launcher failed"
    failure = Failure(max(rank, 0), "ended", "", f"exit code {code}", shown)
    return RankError(f"{who} (the launcher's exit code is {code}):\n{shown}", (failure,))
