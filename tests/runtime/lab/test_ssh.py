"""A real sshd: it starts the node of a lab, and does what the guide says of `ssh` and `scp`."""

import http.server
import json
import stat
import subprocess
import sys
import threading
import urllib.request

import pytest

from dtlearn.cli import main
from tests.guides import ROOT, blocks
from tests.real_slurm import end, free_ports, wait_until
from tests.real_sshd import HOST, sshd  # noqa: F401 - a fixture

GUIDE = (ROOT / "docs" / "lab.md").read_text("utf-8")
TOML = next(block for block in blocks(GUIDE, "toml") if '"ssh"' in block)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def lab(tmp_path):
    """The guide's lab.toml: a node on this machine, one over ssh. With this machine's names, and fewer ranks."""
    text = TOML
    for old, new in (
        ("10.0.0.5", "127.0.0.1"),
        ("47600-47620", "47600-47990"),
        ("~/.dtlearn/lab.token", str(tmp_path / "lab.token")),
        ("slots = 4", "slots = 1"),
        ("/home/ada/dtlearn/.venv/bin/python", sys.executable),
        ('"/home/ada/dtlearn"', f'"{ROOT}"'),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "lab.toml").write_text(text)
    assert main(["lab-token", str(tmp_path / "lab.token")]) == 0
    return tmp_path / "lab.toml"


def examine(lab, capsys) -> tuple[int, list[dict]]:
    capsys.readouterr()
    code = main(["doctor", "--lab", str(lab), "--json"])
    return code, json.loads(capsys.readouterr().out)["sections"]


def test_the_doctor_finds_a_lab_with_a_node_over_ssh_well(sshd, lab, capsys):  # noqa: F811
    code, sections = examine(lab, capsys)
    assert code == 0, sections
    assert [s["title"] for s in sections] == ["head", "desk1 (rank 0)", f"{HOST} (ranks 1 and 2)", "all nodes"]
    assert "1 MB over 3 ranks" in sections[-1]["checks"][-1]["found"]


def test_a_host_that_lets_nobody_in_is_told_with_the_words_of_ssh(sshd, lab, capsys):  # noqa: F811
    sshd.stop()
    try:
        code, sections = examine(lab, capsys)
    finally:
        sshd.start()
    assert code == 1
    (joined,) = [c for s in sections if s["title"].startswith(HOST) for c in s["checks"] if c["name"] == "joined"]
    assert "`ssh` ended with code 255. It said: " in joined["found"] and "Connection refused" in joined["found"]


def test_the_guides_try_comes_back_at_once(sshd):  # noqa: F811
    done = subprocess.run(["ssh", "-o", "BatchMode=yes", HOST, "true"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_token_is_copied_with_its_mode(sshd, lab, tmp_path):  # noqa: F811
    """As the node wants it: for its owner alone."""
    copy = tmp_path / "copy.token"
    subprocess.run(["scp", "-q", "-p", str(tmp_path / "lab.token"), f"{HOST}:{copy}"], check=True, timeout=60)
    assert copy.read_bytes() == (tmp_path / "lab.token").read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_server_on_the_heads_loopback_is_reached_through_ssh(sshd, tmp_path):  # noqa: F811
    """As JupyterLab is, by the guide's `ssh -L 8888:localhost:8888 head`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"the head")

        def log_message(self, *args):
            pass

    (near,) = free_ports(1)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tunnel = subprocess.Popen(["ssh", "-N", "-L", f"{near}:localhost:{server.server_port}", HOST])
        said = []

        def answers() -> bool:
            try:
                with urllib.request.urlopen(f"http://localhost:{near}/", timeout=30) as page:
                    said.append(page.read())
            except OSError:
                assert tunnel.poll() is None
            return bool(said)

        try:
            wait_until(answers, lambda: "no answer through the tunnel")
        finally:
            end(tunnel)
            server.shutdown()
    assert said == [b"the head"]
