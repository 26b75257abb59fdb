"""`dtlearn node` and `dtlearn lab-token`: their options, and what a person is told when a machine cannot join."""

import argparse
import os
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from dtlearn.cli import main
from dtlearn.cli.node import head_address
from dtlearn.runtime.lab.config import HeadConfig
from dtlearn.runtime.lab.head.port import HeadPort
from dtlearn.runtime.lab.token import make_token
from dtlearn.runtime.machine.patience import crowding


@pytest.fixture
def token(tmp_path):
    make_token(tmp_path / "lab.token")
    return tmp_path / "lab.token"


@pytest.fixture
def head(tmp_path, token):
    """A head that sends every node away."""
    config = HeadConfig("127.0.0.1", tuple(range(47810, 47860)), token, patience=5.0)
    made = HeadPort(config, lambda said: f"{said['host']} has the wrong shoes", lambda host, cause: cause)
    yield made
    made.close()


def node(*options: str) -> subprocess.CompletedProcess:
    """`dtlearn node`, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "dtlearn", "node", *options], capture_output=True, text=True, timeout=60, check=False
    )


def test_an_address_is_a_host_and_a_port():
    assert head_address("192.168.1.10:47600") == ("192.168.1.10", 47600)
    assert head_address("localhost:80") == ("127.0.0.1", 80)
    for wrong in ("192.168.1.10", ":80", "host:", "host:0", "host:70000", "host:x"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"such as 192\.168\.1\.10:47600; got"):
            head_address(wrong)


def test_a_token_is_made_and_told(tmp_path, capsys):
    assert main(["lab-token", str(tmp_path / "new.token")]) == 0
    assert "new.token.head: the head's own key, never copied" in capsys.readouterr().out
    assert stat.S_IMODE(os.stat(tmp_path / "new.token").st_mode) == 0o600


def test_a_token_that_others_can_read_is_refused(token, capsys):
    token.chmod(0o644)
    assert main(["node", "--join", "127.0.0.1:9", "--token-file", str(token)]) == 1
    assert f"chmod 600 {token}" in capsys.readouterr().err


def test_a_directory_that_is_missing_is_told(token, capsys):
    assert main(["node", "--join", "127.0.0.1:9", "--token-file", str(token), "--directory", "/none"]) == 1
    assert "the directory /none cannot be used here: No such file or directory" in capsys.readouterr().err


def test_a_port_where_nobody_listens_is_told(token):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begun = time.monotonic()
    done = node("--join", f"127.0.0.1:{port}", "--token-file", str(token))
    assert done.returncode == 1 and f"nobody listens at 127.0.0.1:{port}" in done.stderr
    assert time.monotonic() - begun < 10 * crowding()


def test_a_head_that_refuses_says_why(head, token):
    done = node("--join", head.address, "--token-file", str(token), "--name", "alpha")
    assert done.returncode == 1 and "dtlearn node: alpha has the wrong shoes" in done.stderr


def test_the_wrong_token_is_refused_at_once(head, tmp_path):
    make_token(tmp_path / "other.token")
    begun = time.monotonic()
    done = node("--join", head.address, "--token-file", str(tmp_path / "other.token"))
    assert done.returncode == 1 and "refused this node: its token is not that of the lab in force" in done.stderr
    assert time.monotonic() - begun < 10 * crowding()


def test_a_server_that_is_no_head_is_told(token):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def slam():
            listener.accept()[0].close()

        thread = threading.Thread(target=slam)
        thread.start()
        done = node("--join", f"127.0.0.1:{listener.getsockname()[1]}", "--token-file", str(token))
        thread.join()
    assert done.returncode == 1 and "refused this node" in done.stderr
