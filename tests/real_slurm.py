"""A Slurm of two nodes on this machine: the real programs, on the loopback, in a folder of their own.

Nothing of the system's Slurm is touched, if it has one: configuration, key, sockets, ports and state are the test's.
Each node has a host name of its own, in a namespace of its own, so that programs can tell them apart. Its GPUs are
numbers that Slurm hands out; the ranks stay on the CPU.
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NODES = ("n1", "n2")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # where Debian has the daemons
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "salloc", "srun", "scontrol", "unshare")
PATIENCE = 60.0  # seconds for what takes one on a quiet machine

# No systemd and no cgroups: both are missing in containers. No accounting. What hangs is killed at once.
_CONFIG = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=2
FirstJobId={job}
SchedulerParameters=sched_min_interval=1000,batch_sched_delay=0
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=n1 Port={ports[1]} CPUs=16 RealMemory=4000 Gres=gpu:2
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname=n2 Port={ports[2]} CPUs=16 RealMemory=4000 Gres=gpu:2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""


class Slurm:
    """A Slurm that runs from `start` to `stop`; with `environment`, commands find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        (self.folder / "slurm.conf").write_text(
            _CONFIG.format(
                folder=self.folder,
                host=socket.gethostname(),
                ports=free_ports(3),
                job=os.getpid() % 10_000 + 1,  # scripts make ports of the numbers of jobs: another test has others
            )
        )
        for number in range(2):
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        version = re.findall(r"\d+", self.run("slurmd", "-V").stdout)[:2]
        if [int(number) for number in version] >= [23, 2]:  # older ones know no such word, and want no cgroups here
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(NODES)} {socket.gethostname()}\n")
        (self.folder / "key").write_bytes(secrets.token_bytes(1024))
        (self.folder / "key").chmod(0o400)
        own = {f"--{name}": self.folder / file for name, file in (("key-file", "key"), ("socket", "munge"))}
        own |= {f"--{name}-file": self.folder / f"munge.{name}" for name in ("pid", "log", "seed")}
        self._daemon("munged", "--foreground", "--force", *(f"{name}={path}" for name, path in own.items()))
        wait_until(lambda: (self.folder / "munge").exists(), self.log)
        self._daemon("slurmctld", "-D")
        for node in NODES:
            enter = f"mount --bind {self.folder}/hosts /etc/hosts && hostname {node} && exec slurmd -D -N {node}"
            self._daemon("unshare", "--mount", "--uts", "sh", "-c", enter)
        wait_until(lambda: self.states() == ["idle", "idle"], self.log)

    def _daemon(self, *command: str) -> None:
        with (self.folder / "log").open("ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            environment = {**os.environ, **self.environment}
            self._daemons.append(subprocess.Popen(command, env=environment, start_new_session=True, **streams))

    def run(self, *command: str, **options) -> subprocess.CompletedProcess[str]:
        """Run one of its commands."""
        options = {"env": {**os.environ, **self.environment}, "timeout": 110, **options}
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def states(self) -> list[str]:
        """The states of the nodes: "idle", "allocated", ..."""
        return self.run("sinfo", "--Node", "--noheader", "--format=%T").stdout.split()

    def submit(self, script: str, folder: Path) -> str:
        """Submit a script in a folder that has the environment of this Python as .venv; returns the job's number."""
        (folder / "job.sh").write_text(script)
        if not (folder / ".venv").exists():
            (folder / ".venv").symlink_to(sys.prefix)
        submitted = self.run("sbatch", "--parsable", "job.sh", cwd=folder)
        assert submitted.returncode == 0, submitted.stderr
        return submitted.stdout.strip()

    def batch(self, script: str, folder: Path, during: Callable[[str], None] = lambda job: None) -> tuple[int, str]:
        """Submit a script, do something, and wait for its job.

        Returns the exit status (an array's is that of its worst task), and all that was written.
        """
        job = self.submit(script, folder)
        during(job)

        def ends() -> list[tuple[str, str]]:  # `sbatch --wait` looks seldom
            shown = self.run("scontrol", "--oneliner", "show", "job", job).stdout
            over = not re.search(r"JobState=(PENDING|CONFIGURING|RUNNING|COMPLETING)", shown)
            return re.findall(r" ExitCode=(\d+):(\d+)", shown) if over else []

        wait_until(ends, self.log, 500)
        return max(int(code) or int(signal_) for code, signal_ in ends()), self.written(folder, job)

    def written(self, folder: Path, job: str) -> str:
        """The output of a job; an array's is that of all its tasks."""
        return "".join(path.read_text() for path in sorted(folder.glob(f"slurm-{job}*.out")))

    @contextlib.contextmanager
    def allocation(self, *command: str) -> Iterator[dict[str, str]]:
        """What `salloc ...` gives a shell: the variables of that shell. It is given back at the end."""
        variables = self.folder / "allocated"
        hold = ["sh", "-c", f"env -0 >{variables}.new && mv {variables}.new {variables} && exec cat"]
        environment = {**os.environ, **self.environment}
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        held = subprocess.Popen([*command, *hold], env=environment, start_new_session=True, **streams)
        try:
            wait_until(variables.exists, self.log)
            pairs = (pair.partition("=") for pair in variables.read_text().split("\0"))
            yield {name: value for name, _, value in pairs if name.startswith("SLURM_")} | self.environment
        finally:
            try:
                held.communicate(timeout=PATIENCE)  # the end of its input is the end of that shell
            finally:
                end(held)
                variables.unlink(missing_ok=True)
            wait_until(lambda: self.states() == ["idle", "idle"], self.log)

    def log(self) -> str:
        """The end of what the daemons said."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        try:
            if len(self._daemons) > 1:  # what runs is ended by those who know of it
                self.run("scancel", "--user=root", timeout=PATIENCE)
                wait_until(lambda: not self.run("squeue", "--noheader", timeout=PATIENCE).stdout.strip(), self.log)
        finally:
            for daemon in reversed(self._daemons):
                end(daemon)


def end(process: subprocess.Popen, seconds: float = 10.0) -> None:
    """End a process that we started."""
    process.terminate()  # nothing, if it has ended
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], object], why_not: Callable[[], str], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why_not()
        time.sleep(0.1)


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def reason_to_skip() -> str | None:
    """Why there can be no Slurm here; None if there can."""
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=PATH)]:
        return f"no {missing[0]} (Debian, Ubuntu: sudo apt install slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "only root can start a Slurm whose nodes have names of their own"


def skip_for(reason: str | None) -> None:
    """Skip the test that asks, if there is a reason; where these tests are required, fail."""
    if reason:
        assert os.environ.get("DTLEARN_REQUIRE_CLUSTER") != "1", f"DTLEARN_REQUIRE_CLUSTER=1, and {reason}"
        pytest.skip(reason)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A Slurm for the tests of one file."""
    skip_for(reason_to_skip())
    # A short name: an address of a socket may be 100 letters long.
    with tempfile.TemporaryDirectory(prefix="dts", dir="/tmp") as folder:
        made = Slurm(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()
