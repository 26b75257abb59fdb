"""How ranks are started by torchrun, `deepspeed` and `accelerate launch`, and what each says to them.

A launcher starts processes and sets environment variables; nothing else. What it sets is found by starting it on a
script that writes down its environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..environment import LibraryMissing, python_with
from ..require import require_whole

SCRIPT = """
import json, os, sys, pathlib
folder = pathlib.Path(sys.argv[sys.argv.index("--folder") + 1])
(folder / f"{os.getpid()}.json").write_text(json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ)}))
"""
# Changes from run to run, or is the shell's.
OF_THE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD", "LINES", "COLUMNS", "PATH", "PYTHONPATH"}
FORGET = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "TORCHELASTIC", "ACCELERATE")
MINUTES = 3


@dataclass(frozen=True)
class Launcher:
    """A way to start ranks on one machine.

    Attributes:
        name: as one types it.
        command: after the Python of the environment; `{n}` is the number of ranks.
        module: what that Python must have.
    """

    name: str
    command: tuple[str, ...]
    module: str = ""


LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher("torchrun", ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{n}")),
        Launcher(
            "deepspeed",
            ("-m", "deepspeed.launcher.runner", "--num_gpus", "{n}", "--master_addr", "127.0.0.1"),
            "deepspeed",
        ),
        Launcher(
            "accelerate launch --cpu",
            ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "{n}", "--num_machines", "1"),
        ),
    )
}


@dataclass(frozen=True)
class RecordedLaunch:
    """What came of starting a launcher.

    Attributes:
        launcher: its name.
        asked: number of ranks that it was asked for.
        ranks: what each process found, in the order of RANK: the variables that the launcher set.
        arguments: what it added to the script's own arguments, of the first process.
    """

    launcher: str
    asked: int
    ranks: tuple[Mapping[str, str], ...]
    arguments: tuple[str, ...]

    def variables(self) -> dict[str, list[str]]:
        """Each variable, with what each process has in it."""
        names = sorted({name for rank in self.ranks for name in rank})
        return {name: [rank.get(name, "") for rank in self.ranks] for name in names}


def launch(name: str, num_ranks: int = 2) -> RecordedLaunch:
    """Start a launcher on a script that does nothing but write down what it was told.

    Raises:
        ValueError: there is no such launcher, or no such number of ranks. LibraryMissing: it is not installed.
        RuntimeError: it failed.
    """
    if name not in LAUNCHERS:
        raise ValueError(f"launcher must be one of {', '.join(map(repr, LAUNCHERS))}, got {name!r}")
    require_whole("num_ranks", num_ranks)
    launcher = LAUNCHERS[name]
    python = python_with(launcher.module)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FORGET) and k != "DS_ACCELERATOR"}
    with tempfile.TemporaryDirectory(prefix="dtlearn-launch-") as folder:
        script = Path(folder, "script.py")
        script.write_text(SCRIPT, "utf-8")
        found = Path(folder, "found")
        found.mkdir()
        command = [part.format(n=num_ranks) for part in launcher.command]
        # Launchers start "python" by name, and DeepSpeed's looks for ninja: both are found where this Python is.
        environment = {**kept, "PATH": os.pathsep.join([str(python.parent), kept.get("PATH", "")])}
        done = subprocess.run(
            [python, *command, script, "--folder", found],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * MINUTES,
            check=False,
        )
        processes = [json.loads(file.read_text("utf-8")) for file in sorted(found.glob("*.json"))]
        if done.returncode or not processes:
            last = "\n".join(done.stderr.strip().splitlines()[-6:])
            raise RuntimeError(f"{name} failed. Its last lines:\n{last}")
        processes.sort(key=lambda process: int(process["environ"].get("RANK", 0)))
        ranks = tuple(_told(process["environ"], environment) for process in processes)
        first = processes[0]["argv"]
        own = {"--folder", str(found)}
        return RecordedLaunch(name, num_ranks, ranks, tuple(argument for argument in first if argument not in own))


def _told(found: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process has and its launcher had not."""
    return {name: value for name, value in found.items() if given.get(name) != value and name not in OF_THE_SHELL}


def launcher_is_there(name: str) -> bool:
    """Whether a launcher can be started."""
    try:
        python_with(LAUNCHERS[name].module)
    except LibraryMissing:
        return False
    return True
