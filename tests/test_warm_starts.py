"""A warm start is, for whoever starts and for what is started, like a real one."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dtlearn.runtime.errors import RankError
from dtlearn.runtime.launch import launch_script
from dtlearn.runtime.machine.helper_process import _BOOT
from tests import warm_starts
from tests.notebook.kernel import Notebook
from tests.runtime.conftest import Shown
from tests.runtime.hosts import hosts  # noqa: F401 - a fixture
from tests.warm_starts import MAY_BE_WARM

ROOT = Path(__file__).resolve().parents[1]
# A judge in place of the real one: says what it finds, to its standard output, and ends with the exit code 7.
JUDGE = """
import json, os, signal, sys, threading
def main(*numbers):
    os.write(numbers[0], b"through a descriptor")
    print(json.dumps({
        "torch": "torch" in SEEN, "parent": os.getppid(), "pid": os.getpid(), "session": os.getsid(0), "argv": sys.argv,
        "name": sys.modules["__main__"].__name__, "folder": os.getcwd(), "variable": os.environ.get("OF_THE_TEST"),
        "input": sys.stdin.read(), "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "threads": threading.active_count(), "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
        "command": open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)),
    }), flush=True)
    sys.exit(7)
"""


@pytest.fixture(scope="module")
def source():
    if sys.platform != "linux":
        pytest.skip("copies are made by a call of Linux")
    if warm_starts.current is not None and warm_starts.current.on:  # this is a run with workers
        yield warm_starts.current
        return
    made = warm_starts.start_source()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", warm_starts._execute_child)
        patch.setattr(warm_starts, "current", None)
        warm_starts.use(made)
        yield made
    made.close()


def start(tmp_path: Path, **variables: str) -> tuple[dict, subprocess.Popen]:
    """Start something with the command line of a judge, see JUDGE; what it said, and its process."""
    boot = _BOOT.format(path=str(ROOT), module="dtlearn.grading.judge_process.server")
    boot = boot.replace("import signal, sys;", "import signal, sys; SEEN = set(sys.modules);", 1)
    instead = "exec(open('judge.py').read()); from dtlearn.grading.judge_process.server import main as _; _boot = '"
    (tmp_path / "judge.py").write_text(JUDGE)
    # The pattern of a judge's command is there; what runs is the text above.
    command = boot.replace("from dtlearn", f"{instead}from dtlearn", 1).replace("; main(*map", ";'; main(*map", 1)
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", command, str(write)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[write],
        cwd=tmp_path,
        env={**os.environ, "OF_THE_TEST": "yes", **variables},
        start_new_session=True,
    )
    os.close(write)
    output, _ = process.communicate(b"a line\n", timeout=60)
    with open(read, "rb") as file:
        assert file.read() == b"through a descriptor"
    assert process.args[3:] == [command, str(write)]
    return json.loads(output), process


def test_both_sides_find_what_a_real_start_gives_them(source, tmp_path):
    # What torch._dynamo and scikit-learn set in this process when they are loaded makes no difference.
    warm, process = start(tmp_path, TORCHINDUCTOR_CACHE_DIR="/tmp/inductor", KMP_INIT_AT_FORK="FALSE")
    assert warm.pop("torch"), "this was no warm start"
    assert process.returncode == 7 and process.pid == warm["pid"] == warm["session"]
    assert warm["parent"] == os.getpid()
    assert warm["command"] == process.args
    real, process = start(tmp_path, PYTHONHASHSEED="7")  # what matters to the modules that are loaded
    assert not real.pop("torch") and process.returncode == 7
    for said in (warm, real):
        del said["pid"], said["session"], said["command"], said["argv"][1:]
    # The channel to its own source.
    assert len(warm.pop("open")) == len(real.pop("open")) + 1
    assert warm == real


def test_an_agent_is_known_by_its_number_and_command_and_can_be_killed(source):
    from dtlearn.runtime.agent.client import LocalAgent

    agent = LocalAgent()
    assert agent.hello()["pid"] == agent.pid
    assert "\0".join(agent.process._process.args) in command_of(agent.pid)
    os.kill(agent.pid, signal.SIGKILL)
    assert agent.process.exit_code == -signal.SIGKILL
    agent.end()


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_kernel_is_warm_and_does_not_wait_for_its_source(source, tmp_path):
    notebook = Notebook(tmp_path)
    assert notebook.value("'torch' in __import__('sys').modules"), "this was no warm start"
    kernel = psutil.Process(notebook.pid)
    assert kernel.ppid() == os.getpid()
    # A kernel that ends waits for the processes of its group: its source is not one of them.
    assert [os.getpgid(child.pid) == os.getpgid(kernel.pid) for child in kernel.children()] == [False]
    notebook.close()


SESSION_OF_A_WORKER = """
import json, os, subprocess, sys
import warm_starts
from dtlearn.runtime.agent.client import LocalAgent
def shown(pid):
    variables = open(f"/proc/{pid}/environ").read().split(chr(0))
    return [line.partition("=")[2] for line in variables if line.startswith("DTLEARN_TEST_SESSION=")]
warm = "torch" in sys.modules
agent = LocalAgent()
own, source = shown("self"), warm_starts.source_pid()
real = [sys.executable, "-c", "import os; print(os.environ['DTLEARN_TEST_SESSION'])"]
print(json.dumps({
    "warm": warm, "source": source,
    "changed": sorted(warm_starts.current.changed_variables()),
    "sessions": [os.environ["DTLEARN_TEST_SESSION"], *own, *shown(agent.pid), *shown(source),
                 subprocess.check_output(real, text=True).strip()],
}))
agent.end()
"""


def test_a_worker_is_a_copy_and_its_processes_are_told_from_those_of_others(source):
    command = [sys.executable, "-u", "-c", warm_starts.WORKER]
    done = subprocess.run(
        command, input=repr(SESSION_OF_A_WORKER) + "\n", stdout=subprocess.PIPE, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["warm"] and told["source"] not in (0, warm_starts.source_pid()) and told["changed"] == []
    assert len(told["sessions"]) == 5 and len(set(told["sessions"])) == 1
    assert set(told["sessions"]) != {os.environ["DTLEARN_TEST_SESSION"]}
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert warm_starts.__name__ == "warm_starts", "this worker is no copy: execnet starts it another way"


def test_without_its_source_a_start_is_real(source, monkeypatch):
    from dtlearn.runtime.agent.client import LocalAgent

    made = warm_starts.start_source()
    monkeypatch.setattr(warm_starts, "current", made)
    made._process.kill()
    made._process.wait()
    agent = LocalAgent()
    assert agent.hello()["pid"] == agent.pid and not made.on
    agent.end()
    made.close()


WHERE = (
    MAY_BE_WARM
    + """
import json, os, socket, sys, time
print(json.dumps({
    "torch": "torch" in sys.modules, "argv": sys.argv, "name": socket.gethostname(), "path": sys.path[:2],
    "interfaces": [name for _, name in socket.if_nameindex() if name in ("lo", "eth0") or name.startswith("dt")],
    "sys": sorted(name for name in os.listdir("/sys/class/net") if name in ("lo", "eth0") or name.startswith("dt")),
    "clock": round((time.monotonic() - float(sys.argv[1])) / 100),
}))
sys.exit(int(sys.argv[2]))
"""
)


@pytest.mark.parametrize("way", ["ssh", "by hand"])
def test_on_a_host_a_copy_finds_what_a_real_start_finds(source, hosts, monkeypatch, way):  # noqa: F811
    said = {}
    for warm in (True, False):
        monkeypatch.setattr(source, "on", warm)
        line = shlex.join([sys.executable, "-c", WHERE, str(time.monotonic()), "7"])
        at_hand = ["ip", "netns", "exec", f"{hosts.prefix}alpha", "sh", "-c", f"exec {line}"]
        command = ["ssh", "-o", "BatchMode=yes", "alpha", line] if way == "ssh" else at_hand
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 7, done.stderr
        said[warm] = json.loads(done.stdout)
        assert said[warm].pop("torch") == warm
        del said[warm]["argv"][1]
    assert said[True] == said[False]
    there = said[True]
    assert (there["name"] == "alpha", there["clock"]) == ((True, 10) if way == "ssh" else (False, 0))
    assert sorted(there["interfaces"]) == there["sys"] == ["eth0", "lo"]


SCRIPT = """
import os, sys
loaded = "torch" in sys.modules
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
names = [__name__, os.path.basename(__file__), os.path.basename(sys.path[0])]
print(loaded, sys.argv[1:], names, flush=True)
print("no newline", end="")
if dist.get_rank() == 1:
    raise ValueError("on purpose")
"""


@pytest.mark.slow
def test_a_script_and_its_launcher_say_what_they_say_when_really_started(source, monkeypatch, tmp_path):
    said = {}
    for warm in (True, False):
        monkeypatch.setattr(source, "on", warm)
        shown, path = Shown(), tmp_path / "the script.py"
        with pytest.raises(RankError) as error:
            launch_script(SCRIPT, 2, path=path, args=["two words"], timeout=120, sink=shown)
        lines = [(rank, message["content"]["name"], message["content"]["text"]) for rank, message in shown.messages]
        lines = [line for line in lines if line[2][0] != "["]  # of torch itself, with a time
        assert str(warm) in "".join(text for _, _, text in lines)
        said[warm] = sorted((rank, name, text.replace(str(warm), "")) for rank, name, text in lines), str(error.value)
    assert said[True] == said[False]
    assert "rank 1 failed first" in said[True][1] and 'the script.py", line 11, in <module>' in said[True][1]
