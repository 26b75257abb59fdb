"""A sshd of this machine's, on the loopback, that lets in who has the test's key: the real programs, in a folder."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_slurm import PATH, end, free_ports, skip_for, wait_until

HOST = "desk2"  # the name that its configuration gives this machine

_SERVER = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""
_CLIENT = """\
Host {host}
HostName 127.0.0.1
Port {port}
User {user}
IdentityFile {folder}/key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known
StrictHostKeyChecking accept-new
"""


class Sshd:
    """It listens from `start` to `stop`. `folder` has the commands `ssh` and `scp`, which know it as HOST."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemon: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0]
        for name in ("host", "key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL)
        values = {"folder": folder, "port": self.port, "host": HOST, "user": getpass.getuser()}
        for name, text in (("sshd_config", _SERVER), ("ssh_config", _CLIENT)):
            (folder / name).write_text(text.format(**values))
        for name in ("ssh", "scp"):  # the real ones, with this configuration in place of the user's
            (folder / name).write_text(f'#!/bin/sh\nexec {shutil.which(name)} -F {folder}/ssh_config "$@"\n')
            (folder / name).chmod(0o755)

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd locks its unprivileged part in; Debian's, made at boot
        log = (self.folder / "log").open("ab")
        # By its whole path, which it starts itself by again for each connection.
        command = [str(shutil.which("sshd", path=PATH)), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True)
        log.close()
        wait_until(self.listens, lambda: (self.folder / "log").read_text(errors="replace"))

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False

    def stop(self) -> None:
        if self._daemon is not None:
            end(self._daemon)
            self._daemon = None


def reason_to_skip() -> str | None:
    """Why there can be no sshd here; None if there can."""
    if missing := [name for name in ("ssh", "ssh-keygen", "sshd") if not shutil.which(name, path=PATH)]:
        return f"no {missing[0]} (Debian, Ubuntu: sudo apt install openssh-server)"
    return None if os.geteuid() == 0 else "only root can start a sshd on every system"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory) -> Iterator[Sshd]:
    """A sshd for the tests of one file, to which `ssh` and `scp` on PATH lead."""
    skip_for(reason_to_skip())
    made = Sshd(tmp_path_factory.mktemp("sshd"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
        try:
            made.start()
            yield made
        finally:
            made.stop()
