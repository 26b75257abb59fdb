"""One-shot runs of a script under torchrun or accelerate, as on a lab machine, with output by rank."""

import functools
import os
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Protocol

from .device import check_world_size
from .errors import RankError, RanksInterrupted, RanksTimeout
from .faults.failure import Failure, is_peer_loss
from .machine.network import free_port
from .machine.patience import TO_RUN_A_SCRIPT, TO_TELL_WHAT_HAPPENED, Patience
from .machine.run_folder import run_directory
from .output import Sink

_TEE = re.compile(rb"\[default(\d+)\]:(.*)", re.DOTALL)  # how `torchrun --tee` marks a line of local rank 0
_MARK = re.compile(rb"(?<=[^\n])(?=\[default\d+\]:)")  # after a rank's last line, if that does not end in a newline
_TRACEBACK = "Traceback (most recent call last)"
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)
# Last lines of each rank and, as rank -1, of the launchers: {rank: {"stdout": lines, "stderr": lines}}.
_Recent = dict[int, dict[str, deque[str]]]


SCRIPT_VARIABLES = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Launched(Protocol):
    """What `follow` needs of a process; `stdin` is its lifeline."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self) -> int: ...


def launch_script(
    source: str,
    num_processes: int,
    *,
    nodes: int = 1,
    launcher: str = "torchrun",
    path: Path | None = None,
    args: list[str] | None = None,
    timeout: float = TO_RUN_A_SCRIPT,
    sink: Sink,
) -> None:
    """Write `source` to a file and run it on new processes of this machine.

    Args:
        num_processes: processes to start on each node.
        nodes: launchers to start, one for each machine that is played; all run here.
        launcher: "torchrun", "accelerate", or "python" for a script that starts its own processes.
        path: where to keep the script; None: a temporary file.
        timeout: seconds, after which everything is ended; more than 0.
        sink: receives the lines of each rank; rank -1 for lines that the launcher does not attribute.

    Raises:
        ValueError: a wrong number of processes, nodes or seconds, or a launcher that is not known.
        RankError: a process failed; the message has the first failing rank's own traceback.
        RanksTimeout: the time was up.
        RanksInterrupted: the learner interrupted.
    """
    size = check_launch(num_processes, nodes, timeout)
    with run_directory() as run_dir:
        script = path or run_dir / "script.py"
        script.write_text(source, encoding="utf-8")
        meet = f"127.0.0.1:{free_port()}"
        commands = [
            launch_command(script, size, launcher, run_dir / f"logs-{k}", nodes, k, meet) + list(args or [])
            for k in range(nodes)
        ]
        env = {**os.environ, **SCRIPT_VARIABLES}
        follow(
            [functools.partial(start_guarded, c, env) for c in commands], size, timeout, sink, launcher == "torchrun"
        )


def check_launch(num_processes: int, nodes: int, timeout: float) -> int:
    """`num_processes`, those of each node. Raises ValueError for a wrong number of them, or of seconds."""
    check_world_size(check_world_size(num_processes) * nodes)
    if not timeout > 0:
        raise ValueError(f"the time limit must be a positive number of seconds; got {timeout:g}")
    return num_processes


def start_guarded(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Run a command so that nothing of it stays when its standard input, the guard's lifeline, closes."""
    return subprocess.Popen(
        [sys.executable, "-m", "dtlearn.runtime.machine.run_guarded", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=env,
    )


def launch_command(
    script: Path, size: int, launcher: str, log_dir: Path, nodes: int = 1, node_rank: int = 0, meet_at: str = ""
) -> list[str]:
    """The command line that starts `size` processes of `script` on one node; several meet at "address:port"."""
    if launcher == "torchrun":
        # An explicit address: no look-up of the host name, which is slow without DNS. One node takes any free port;
        # several have to know it before they start.
        if nodes == 1:
            meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        else:
            address, _, port = meet_at.rpartition(":")
            meet = ["--node-rank", str(node_rank), "--master-addr", address, "--master-port", port]
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", str(size)),
            *(*meet, "--tee", "3", "--log-dir", str(log_dir), str(script)),
        ]
    if launcher == "accelerate" and nodes == 1:
        import importlib.util

        if importlib.util.find_spec("accelerate") is None:
            raise ValueError("accelerate is not installed; `pip install accelerate`, or use torchrun")
        cpu = [] if Path("/dev/nvidia0").exists() else ["--cpu"]
        return [
            *(sys.executable, "-m", "accelerate.commands.launch", *cpu, "--num_processes", str(size)),
            *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", str(script)),
        ]
    if launcher == "python" and nodes == size == 1:
        return [sys.executable, str(script)]
    raise ValueError(
        f"cannot launch {nodes} x {size} with {launcher!r}: use torchrun, accelerate on one node, or python -n 1"
    )


def follow(
    starts: Sequence[Callable[[], Launched]], size: int, timeout: float, sink: Sink, torchrun: bool = True
) -> None:
    """Start one process per node; pass on the lines of rank `node * size + local rank`."""
    recent: _Recent = {
        rank: {"stdout": deque(maxlen=60), "stderr": deque(maxlen=60)} for rank in range(-1, size * len(starts))
    }
    selector, code = selectors.DefaultSelector(), 0
    processes: list[Launched] = []
    deadline, last_words = time.monotonic() + timeout, None
    try:
        for node, start in enumerate(starts):
            process = start()
            processes.append(process)
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, [node * size, name, b""])
        while selector.get_map() and not (last_words and last_words.over()):
            if time.monotonic() > deadline:
                raise RanksTimeout(f"the script did not finish within {timeout:g} s; everything it started was ended")
            for key, _ in selector.select(0.05):
                data = os.read(key.fd, 1 << 16)
                first_rank, name, rest = key.data
                text = rest + (data or (b"\n" if rest else b""))  # a last line that has no end is a line too
                *lines, key.data[2] = (_MARK.sub(b"\n", text) if torchrun else text).split(b"\n")
                for line in lines:
                    _pass_on(line + b"\n", name, first_rank, recent, sink, torchrun)
                if not data:
                    selector.unregister(key.fileobj)
                    node = first_rank // size
                    # The launchers of other nodes would wait five minutes for one that has failed.
                    if all(k.data[0] != first_rank for k in selector.get_map().values()) and processes[node].wait():
                        last_words, code = last_words or Patience(TO_TELL_WHAT_HAPPENED), code or processes[node].wait()
            sink.tick()
    except KeyboardInterrupt:
        raise RanksInterrupted("interrupted: everything that the script started was ended") from None
    finally:
        selector.close()
        for process in processes:
            for end in (process.stdin, process.stdout, process.stderr):
                assert end is not None
                end.close()
        codes = [process.wait() for process in processes]
    if any(codes):
        raise _failure(code or max(codes), recent)


def _pass_on(line: bytes, name: str, first_rank: int, recent: _Recent, sink: Sink, torchrun: bool) -> None:
    marked = _TEE.match(line) if torchrun else None
    rank = first_rank + int(marked[1]) if marked else -1
    # torch marks the lines of a traceback too; without its mark, ranks that say the same say it in the same words.
    text = (marked[2] if marked else line).decode(errors="replace").removeprefix(f"[rank{rank}]: ")
    if rank not in recent:
        rank = -1
    recent[rank][name].append(text)
    if rank >= 0 or not torchrun:  # torchrun's own lines matter only when something fails
        sink.publish(rank, {"msg_type": "stream", "content": {"name": name, "text": text}})


def _failure(code: int, recent: _Recent) -> RankError:
    """The error of a failed launch: the rank that the launcher names as the first, with its last lines."""
    stderr = {rank: "".join(lines["stderr"]).rstrip() for rank, lines in recent.items()}
    causes = [rank for rank in map(int, _ROOT_CAUSE.findall(stderr[-1])) if rank in recent]
    # torchrun looks ten times a second; of ranks that fell together it may name one that only lost its peer.
    raised = [rank for rank in stderr if rank >= 0 and _TRACEBACK in stderr[rank]]
    first = [rank for rank in [*causes, *raised] if not is_peer_loss(stderr[rank])]
    rank = [*first, *causes, -1][0]
    start = stderr[rank].rfind(_TRACEBACK)
    last_words = "".join([*recent[rank]["stdout"], *recent[rank]["stderr"]]).rstrip()
    shown = stderr[rank][start:] if start >= 0 else last_words
    who = f"rank {rank} failed first" if rank >= 0 else "the launcher failed"
    failure = Failure(max(rank, 0), "ended", "", f"exit code {code}", shown)
    return RankError(f"{who} (the launcher's exit code is {code}):\n{shown}", (failure,))
