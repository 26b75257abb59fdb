"""Stand-ins for Slurm's commands, to run the batch scripts of the guides on this machine.

The shell, its variables and its quoting are real. `python` and `torchrun`, which the script's environment offers, hand
their command over to the test, which starts it as any other: so it may be a warm copy (see warm_starts).
"""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

COMMANDS = {"python": "", "torchrun": "-m torch.distributed.run"}
HAND_OVER = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    socket.send_fds(asked, [json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()], [1, 2])
    asked.shutdown(socket.SHUT_WR)
    sys.exit(int(asked.recv(10)))
"""


def run_batch_script(
    text: str, folder: Path, *, hosts: str, srun: str, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder. `hosts` and `srun` are what the shell does for `scontrol show hostnames` and `srun`."""
    assert all(shutil.which(name, path=Path(sys.executable).parent) for name in COMMANDS)
    programs = {"scontrol": f'#!/bin/sh\n[ "$1 $2" = "show hostnames" ] && {hosts}\n', "srun": f"#!/bin/sh\n{srun}\n"}
    hand_over = shlex.join([sys.executable, "-I", "-S", "-c", HAND_OVER])
    for name, first in COMMANDS.items():
        programs[f".venv/bin/{name}"] = f'#!/bin/sh\nexec {hand_over} "$ASKED" {first} "$@"\n'
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text(f'PATH="{folder}/.venv/bin:$PATH"\n')
    for name, program in programs.items():
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    (folder / "job.sh").write_text(text)
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_JOB_ID": str(os.getpid()),
        **env,
    }
    # An address of a socket may be 100 letters long: `folder` is longer on some systems.
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as listener:
        env["ASKED"] = f"{short}/asked"
        listener.bind(env["ASKED"])
        listener.listen()
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        try:
            return subprocess.run(["bash", "job.sh"], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
        finally:
            with contextlib.suppress(OSError):  # of macOS, where closing it is enough
                listener.shutdown(socket.SHUT_RDWR)  # which ends `accept`


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            asked, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_start, args=(asked,), daemon=True).start()


def _start(asked: socket.socket) -> None:
    """Start what one stand-in hands over, with its folder, environment and output; answer with the exit code."""
    with asked:
        data, fds, _, _ = socket.recv_fds(asked, 1 << 20, 2)
        while more := asked.recv(1 << 20):
            data += more
        try:
            arguments, folder, environment = json.loads(data)
            command = [sys.executable, *arguments]
            done = subprocess.run(command, cwd=folder, env=environment, stdout=fds[0], stderr=fds[1], timeout=100)
            asked.send(str(done.returncode).encode())
        finally:
            for fd in fds:
                os.close(fd)
