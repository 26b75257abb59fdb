"""`dtlearn lab`: what it starts, on what, and that nothing of it stays behind. The server is a real one."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager

from dtlearn.cli import jupyterlab, main
from dtlearn.course import Course, load_course
from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.machine.processes import descendants

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = Path("notebooks", "ch01_ranks.ipynb")
_LAB = """
import sys
from pathlib import Path
from dtlearn.cli import jupyterlab, main
from dtlearn.course import Course, load_course
root = Path(sys.argv.pop(1))
jupyterlab.load_course = lambda: Course(root, load_course().chapters)
sys.exit(main(sys.argv[1:]))
"""


def make_course(folder: Path) -> Course:
    """A course of one chapter, in a folder whose name has a space and a letter beyond ASCII."""
    root = folder / "a kürs"
    (root / "notebooks").mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(), root / NOTEBOOK)
    return Course(root, load_course(ROOT).chapters)


def test_a_missing_notebook_is_told_with_what_to_do(tmp_path):
    course = make_course(tmp_path)
    assert jupyterlab.find_chapter(course, "ch01").slug == "ch01_ranks"
    (course.root / NOTEBOOK).unlink()
    with pytest.raises(ValueError, match="make notebooks"):
        jupyterlab.find_chapter(course, "ch01")


def test_a_copy_is_opened_begun_anew_and_updated(tmp_path, monkeypatch, capsys):
    course = make_course(tmp_path)
    monkeypatch.setattr(jupyterlab, "load_course", lambda: course)
    monkeypatch.setattr(jupyterlab, "open_jupyterlab", lambda course, name, *_: print(f"opened {name}") or 0)
    assert main(["update", "ch01"]) == 0
    assert capsys.readouterr().out == "Your copy is work/ch01_ranks.ipynb; the course's own notebook stays as it is.\n"
    assert main(["update"]) == 2  # chapter 2 is not here
    assert "ch02_collectives.ipynb is missing" in capsys.readouterr().err
    assert main(["lab", "--fresh", "ch01"]) == 0
    said = capsys.readouterr().out
    assert "the one before is work/kept/ch01_ranks-001.ipynb" in said and said.endswith("opened ch01\n")
    (course.root / "work/ch01_ranks.ipynb").unlink()
    (course.root / "work/ch01_ranks.ipynb").mkdir()
    assert main(["update", "ch01"]) == 1
    assert "your copies belong in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ranks", "cores", "gpus", "line"),
    [
        (4, 2, 0, "Up to 4 ranks run here, sharing 2 cores: gloo on CPU: no GPU on this machine"),
        (4, 1, 1, "Up to 4 ranks run here, sharing 1 core: gloo on CPU: 4 ranks, but only 1 GPU(s)"),
        (4, 8, 4, "Up to 4 ranks run here, 8 cores: nccl on 4 GPUs: every rank has a GPU of its own"),
    ],
)
def test_one_line_says_where_ranks_run(ranks, cores, gpus, line):
    assert jupyterlab.where_ranks_run(ranks, cores, gpus) == line


def test_the_command_line_of_the_server():
    plain = jupyterlab.server_command(Path("/a course"), NOTEBOOK, False, None, None, False)
    assert plain[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--ServerApp.root_dir=/a course" in plain
    assert "--LabApp.default_url=/lab/tree/notebooks/ch01_ranks.ipynb" in plain
    assert "--LabApp.news_url=None" in plain
    assert not {"--no-browser", "--allow-root"} & set(plain)
    assert not [each for each in plain if each.startswith(("--port", "--ip"))]
    full = jupyterlab.server_command(Path("/a course"), NOTEBOOK, True, 9000, "0.0.0.0", True)
    assert full[len(plain) :] == ["--no-browser", "--port=9000", "--ip=0.0.0.0", "--allow-root"]


def test_the_address_has_the_token_if_there_is_one():
    info = {"url": "http://localhost:8889/base/", "token": "a b"}
    assert (
        jupyterlab.notebook_url(info, NOTEBOOK)
        == "http://localhost:8889/base/lab/tree/notebooks/ch01_ranks.ipynb?token=a+b"
    )
    assert jupyterlab.notebook_url({**info, "token": ""}, NOTEBOOK).endswith(".ipynb")


def test_a_token_of_the_user_is_kept(tmp_path):
    own = {"JUPYTER_RUNTIME_DIR": str(tmp_path)}
    assert jupyterlab.server_environment({**own, "JUPYTER_TOKEN": "mine"})["JUPYTER_TOKEN"] == "mine"
    assert len(jupyterlab.server_environment(own)["JUPYTER_TOKEN"]) >= 40


def foreign_kernel(folder: Path) -> Path:
    """A Jupyter data folder with a kernel `python3` of another Python."""
    kernel = folder / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = ["/usr/bin/otherpython", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "other", "language": "python"}))
    return folder


def test_a_kernel_of_another_python_is_passed_over(tmp_path):
    foreign = str(foreign_kernel(tmp_path / "foreign"))
    given = {"JUPYTER_PATH": foreign, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    own, after = jupyterlab.server_environment(given)["JUPYTER_PATH"].split(os.pathsep)
    assert own.startswith(given["JUPYTER_RUNTIME_DIR"]) and after == foreign
    manager = KernelSpecManager(kernel_dirs=[f"{own}/kernels", f"{foreign}/kernels"])
    assert manager.get_kernel_spec("python3").argv[0] == sys.executable
    manager = KernelSpecManager(kernel_dirs=[f"{foreign}/kernels"])
    assert manager.get_kernel_spec("python3").argv[0] == "/usr/bin/otherpython"


def test_a_missing_jupyterlab_is_told_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"jupyterlab is not installed in .* `make lab`"):
        jupyterlab.open_jupyterlab(make_course(tmp_path), "ch01")


def test_a_server_that_does_not_start_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(jupyterlab, "server_command", lambda *_: [sys.executable, "-c", "import sys; sys.exit(3)"])
    with pytest.raises(LaunchError, match="exit code 3"):
        jupyterlab.open_jupyterlab(make_course(tmp_path), "ch01")


class RunningLab:
    """`dtlearn lab --no-browser` on a small course, with settings of its own. What it printed is in `said`."""

    def __init__(self, folder: Path, port: int) -> None:
        root = make_course(folder).root
        names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        env = {**os.environ, **{name: str(folder / name) for name in names}}
        foreign_kernel(folder / "JUPYTER_DATA_DIR")
        command = [sys.executable, "-c", _LAB, str(root), "lab", "ch01", "--no-browser", f"--port={port}"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.said = ""
        while "Ctrl-C" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        self.address = urlsplit(next(word for word in self.said.split() if word.startswith("http://")))

    def ask(self, path: str, body: dict | None = None) -> str:
        token = parse_qs(self.address.query)["token"][0]
        request = urllib.request.Request(
            f"http://{self.address.netloc}{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"token {token}"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()


def wait_until_ready(connection: Path) -> None:
    """Return when the kernel answers: one that is interrupted while it still starts prints a traceback."""
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels(hb=False, stdin=False)
    try:
        client.wait_for_ready(timeout=30)
    finally:
        client.stop_channels()


def commands(pids: list[int]) -> dict[int, list[str]]:
    """{pid: command line} of those that live; zombies have none."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            if line := Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = line.decode().split("\0")
    return found


# Jupyter picks free ports, and its kernel takes them half a second later: another test's ranks may have one by then.
_HEARTBEAT = re.compile(
    r"Exception in thread Heartbeat:\nTraceback .*\n(?:(?!Exception in|Traceback).*\n)*?.*Address already in use.*\n?"
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_the_real_lab_opens_the_notebook_and_leaves_nothing(tmp_path, end):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if end == signal.SIGINT:
            taken.close()  # free in one case, in use in the other
        running = RunningLab(tmp_path, port)
    try:
        assert "version" in json.loads(running.ask("/api"))
        assert (running.address.port == port) == (end == signal.SIGINT)
        assert running.address.path == "/lab/tree/work/ch01_ranks.ipynb"
        assert "<title>JupyterLab</title>" in running.ask(running.address.path)
        assert json.loads(running.ask("/api/contents/work/ch01_ranks.ipynb"))["type"] == "notebook"
        wanted = {"path": "work/ch01_ranks.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
        session = json.loads(running.ask("/api/sessions", wanted))
        wait_until_ready(tmp_path / "JUPYTER_RUNTIME_DIR" / f"kernel-{session['kernel']['id']}.json")
        started = commands(descendants(running.process.pid))
        (kernel,) = [line for line in started.values() if "ipykernel_launcher" in line]
        assert kernel[0] == sys.executable
        running.process.send_signal(end)
        said = running.process.communicate(timeout=20)[0]
    finally:
        running.process.kill()
        running.process.wait()
        running.process.stdout.close()
    assert running.process.returncode == (0 if end == signal.SIGINT else -signal.SIGKILL)
    if end == signal.SIGINT:
        assert said.endswith("JupyterLab has ended, and its kernels and ranks with it.\n")
    before, said = (_HEARTBEAT.sub("", text) for text in (running.said, said))
    assert "Traceback" not in before + said and "WARNING" not in said, before + said
    deadline = time.monotonic() + 15
    while commands(list(started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not commands(list(started))
