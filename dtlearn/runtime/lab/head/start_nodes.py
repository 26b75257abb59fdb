"""How the nodes of a lab are started: typed by a person, here, over ssh, or inside a Slurm allocation."""

import contextlib
import shlex
import subprocess
import sys
import tempfile

from ...machine.patience import TO_END_POLITELY
from ...machine.processes import has_ended
from ..config import NodeConfig

_WORDS = 1000  # characters of what a start command said that an error quotes


def node_command(node: NodeConfig, address: str, token_file: str) -> list[str]:
    """The command that makes a machine a node. The token itself never stands on a command line."""
    options = ["--join", address, "--name", node.host, "--token-file", token_file]
    options += ["--interface", node.interface] if node.interface else []
    options += ["--directory", node.directory] if node.directory else []
    return [node.python or sys.executable, "-m", "dtlearn", "node", *options]


def start_command(node: NodeConfig, address: str) -> list[str]:
    """What the head runs to start a node. The token goes to its standard input. ValueError for one started by hand."""
    inner = node_command(node, address, "-")
    if node.start == "local":
        return inner
    if node.start == "ssh":
        # BatchMode: a question for a password would wait for ever, as nobody sees it.
        return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", node.host, shlex.join(inner)]
    if node.start == "srun":
        # --overlap: a step inside an allocation that another step, the notebook's say, holds.
        return ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node.host}", *inner]
    raise ValueError(f"a node that starts {node.start!r} has no start command")


class Starter:
    """A running start command; it lives as long as its node."""

    def __init__(self, node: NodeConfig, address: str, token: str) -> None:
        self._log = tempfile.TemporaryFile("w+", prefix="dtlearn-node-")  # noqa: SIM115
        self.command = start_command(node, address)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # an interrupt of the notebook is for the head to handle
            )
        except OSError as error:
            self._error = f"{self.command[0]}: {error.strerror}"
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            stdin.write(token.encode())

    def problem(self) -> str | None:
        """Why the node will not come, once that is known: the command has ended."""
        if self._process is None:
            return self._error
        if self._process.poll() is None:
            return None
        self._log.seek(0)
        said = self._log.read().strip()[-_WORDS:]
        return f"`{self.command[0]}` ended with code {self._process.returncode}. It said: {said or '(nothing)'}"

    def close(self, seconds: float = TO_END_POLITELY) -> None:
        """End the command; its node has been sent home before."""
        if self._process is not None:
            if not has_ended(self._process, seconds):
                self._process.kill()
            self._process.wait()
        self._log.close()
