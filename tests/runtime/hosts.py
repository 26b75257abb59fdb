"""Machines for the tests of labs: network namespaces on one bridge, each with an address and a host name of its own."""

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("alpha", "beta")
_SSH = """#!/bin/sh
# Plays ssh: `ssh -o A=b ... HOST COMMAND` runs COMMAND in the namespace of HOST.
while [ "$1" = "-o" ]; do shift 2; done
host=$1; shift
[ -e /run/netns/{prefix}$host ] || {{ echo "ssh: Could not resolve hostname $host" >&2; exit 255; }}
exec ip netns exec {prefix}$host unshare --uts --time --monotonic 1000 --fork sh -c "hostname $host; exec $*"
"""


_CLONE_NEWTIME, _CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x80, 0x20000, 0x4000000, 0x40000000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 0x4000, 0x80000, 2


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Hosts:
    """Two hosts, and this process as a third machine, on one network. `folder` has a command `ssh` that leads there."""

    def __init__(self, folder: Path) -> None:
        self.prefix = f"dt{os.getpid()}"
        self.folder = folder
        self.bridge = self.prefix + "br"

    def make(self) -> None:
        taken = subprocess.run(["ip", "-4", "addr"], capture_output=True, text=True, check=True).stdout
        self.net = next(
            f"10.77.{k % 256}" for k in range(os.getpid(), os.getpid() + 256) if f"10.77.{k % 256}." not in taken
        )
        self.head = f"{self.net}.254"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.head}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for k, name in enumerate(NAMES):
            space, near = self.prefix + name, f"{self.prefix}v{k}"
            ip("netns", "add", space)
            ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", near, "master", self.bridge, "up")
            ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
        ssh = self.folder / "ssh"
        ssh.write_text(_SSH.format(prefix=self.prefix))
        ssh.chmod(0o755)

    def remove(self) -> None:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", self.prefix + name], capture_output=True, check=False)
        for k in range(len(NAMES)):
            subprocess.run(["ip", "link", "del", f"{self.prefix}v{k}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def address(self, name: str) -> str:
        return f"{self.net}.{NAMES.index(name) + 1}"

    def cut(self, name: str) -> None:
        """Pull that host's plug out of the network."""
        ip("link", "set", f"{self.prefix}v{NAMES.index(name)}", "down")

    def mend(self, name: str) -> None:
        ip("link", "set", f"{self.prefix}v{NAMES.index(name)}", "up")

    @contextlib.contextmanager
    def no_way(self, source: str, target: str):
        """Packets from one host to another are lost, as behind a firewall."""
        route = ("route", "{}", "blackhole", f"{self.address(target)}/32")
        ip("-n", self.prefix + source, *(part.format("add") for part in route))
        try:
            yield
        finally:
            ip("-n", self.prefix + source, *(part.format("del") for part in route))

    def run(self, name: str, *command: str, **options) -> subprocess.Popen:
        """Start a command on a host."""
        return subprocess.Popen(["ip", "netns", "exec", self.prefix + name, *command], **options)

    def node_pid(self, name: str) -> int:
        """The process id of a host's node."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if [b"-m", b"dtlearn", b"node"] == words[1:4] and name.encode() in words and self.head in str(words):
                    found.append(int(folder.name))
        assert len(found) == 1, found
        return found[0]


def enter(space: str, name: str) -> None:
    """Do, in a process that runs, what `_SSH` does: it goes on in that network namespace, on the host of that name.

    It goes on as a child of what it was, which waits, and ends as the child does. With no name: what `Hosts.run` does;
    it stays the same process.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function, *arguments) -> None:
        if function(*arguments):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), function.__name__)

    descriptor = os.open(f"/run/netns/{space}", os.O_RDONLY)
    call(libc.setns, descriptor, _CLONE_NEWNET)
    os.close(descriptor)
    call(libc.unshare, _CLONE_NEWNS)
    call(libc.mount, b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)
    call(libc.umount2, b"/sys", _MNT_DETACH)  # it shows the interfaces of the namespace that mounts it
    call(libc.mount, space.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None)
    if not name:
        return
    call(libc.unshare, _CLONE_NEWUTS | _CLONE_NEWTIME)
    Path("/proc/self/timens_offsets").write_text("monotonic 1000 0\n")
    socket.sethostname(name)
    platform._uname_cache = None
    if (pid := os.fork()) == 0:
        return
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def write_lab(folder: Path, hosts: Hosts, head: str = "", nodes: str = "", start: str = "ssh", slots: int = 2) -> Path:
    """A lab.toml of the two hosts; `head` and `nodes` add lines to their tables."""
    parts = [f'[head]\naddress = "{hosts.head}"\nport = "47600-47700"\nwait = 300\n{head}\n']
    parts += [f'[[node]]\nhost = "{n}"\nslots = {slots}\nstart = "{start}"\n{nodes}\n' for n in NAMES]
    path = folder / "lab.toml"
    path.write_text("\n".join(parts))
    return path


def reason_to_skip() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if sys.platform != "linux" or not all(map(shutil.which, ("ip", "unshare"))):
        return "network namespaces need Linux with iproute2 and util-linux"
    name = f"dt{os.getpid()}try"
    made = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False)
    if made.returncode == 0:
        ip("link", "del", name)
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        return f"no right to make network namespaces: {made.stderr.decode().strip()}"
    ip("netns", "del", name)
    return None


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two hosts for the tests of one file, and `ssh` to them."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        patch.setenv("DTLEARN_TEST_HOSTS", made.prefix)  # for tests/warm_starts.py
        try:
            made.make()
            yield made
        finally:
            made.remove()
