"""For all tests: headless rendering, interrupts, skips for what a machine lacks, a watch for processes left behind."""

import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
STAND_IN = "stand_in"  # see tests/devices.py
DEVICES = ("cpu", STAND_IN)
# A worker that is a warm copy has begun its session, see `warm_starts`.
SESSION = os.environ["DTLEARN_TEST_SESSION"] if "tests.warm_starts" in sys.modules else uuid.uuid4().hex
MARKER = f"DTLEARN_TEST_SESSION={SESSION}".encode()
SECONDS_TO_VANISH = 20.0

# Folders of tests of the platform. In those of the others, ranks run functions of the test's file, and import it.
PLATFORM = ("bench", "checks", "cli", "course", "grading", "notebook", "runtime", "stand_in", "tools", "viz")
# Files whose tests share nothing, and which would keep one worker busy when the others have ended.
APART = ("tests/course/test_exercises.py", "tests/course/test_on_another_device.py")
BESIDES = {"zero": ("data_parallel", "mixed_precision")}  # what helpers of these folders import

# Inherited by every process that a test starts, and by theirs.
os.environ["DTLEARN_TEST_SESSION"] = SESSION
os.environ["DTLEARN_HEADLESS"] = "1"
# torch's helper threads spin while they wait, on processors that other tests need: half of a verdict's processor time.
os.environ["OMP_WAIT_POLICY"] = "passive"

# A script starts its background processes with SIGINT ignored (`make test &`, and what nohup runs), and so would we and
# every process of a test: no interrupt would reach anybody.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome: $CHROMIUM, one on PATH, or playwright's own; None if there is none."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    if found := next((path for path in map(shutil.which, names) if path), None):
        return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser, for tests with the `browser` marker."""
    path = find_chromium()
    assert path, "DTLEARN_REQUIRE_BROWSER=1, and there is no Chromium on PATH or in CHROMIUM"
    return path


def pytest_addoption(parser):
    devices = ",".join(DEVICES)
    parser.addoption("--devices", default=devices, help=f"of tests that take a device; {devices} if left out, or cuda")


def pytest_generate_tests(metafunc):
    """A test that names `device` runs on each of them; one that names `other_device` on all but the CPU."""
    own = any("device" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    for name in {"device", "other_device"} & {*metafunc.fixturenames}:
        if not own:
            chosen = metafunc.config.getoption("devices").split(",")
            marks = {"cuda": [pytest.mark.gpu], STAND_IN: [pytest.mark.stand_in]}
            values = [pytest.param(d, marks=marks.get(d, [])) for d in chosen if name == "device" or d != "cpu"]
            metafunc.parametrize(name, values, scope="module")


def leave_to_test_all(items) -> None:
    """On the stand-in `make test` runs one case of each test: that with 2 ranks, or the first."""
    cases = {}
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        if STAND_IN in (values.get("device"), values.get("other_device")):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for same in cases.values():
        sizes = [[item.callspec.params.get(name) for name in ("world_size", "num_ranks")] for item in same]
        first = next((item for item, size in zip(same, sizes, strict=True) if 2 in size), same[0])
        for item in same:
            if item is not first:
                item.add_marker(pytest.mark.every_device)


def pytest_collection_modifyitems(items):
    leave_to_test_all(items)
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            skip(items, "gpu", "no CUDA device on this machine")
    wanted = any(item.get_closest_marker("browser") for item in items)
    if wanted and os.environ.get("DTLEARN_REQUIRE_BROWSER") != "1" and not find_chromium():
        skip(items, "browser", "no Chromium: install it (Debian, Ubuntu: sudo apt install chromium) to run this test")
    if any(importlib.util.find_spec(name) is None for name in ("wandb", "ray")):
        skip(items, "watching", "no Weights & Biases and Ray here: `make watching` makes an environment with them")
    if importlib.util.find_spec("deepspeed") is None:
        skip(items, "libraries", "no DeepSpeed for this Python: `make libraries` makes an environment with it")
    # Workers take files in this order: with the long ones first, none of them is alone at the end with one of these.
    turn = {item.path: 3 for item in items}
    for item in items:
        turn[item.path] = min(turn[item.path], turn_of(item))
    items.sort(key=lambda item: turn[item.path])
    # An interrupt can fall between the opening of a file and the `with` that closes it: Python closes it, and says so.
    unclosed = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if "interrupt" in getattr(item, "fixturenames", ()):
            item.add_marker(unclosed)


def turn_of(item) -> int:
    if item.get_closest_marker("browser"):
        return 0
    if item.path.suffix == ".ipynb" or work_unit(item.nodeid) == item.nodeid:
        return 1
    return 2 if item.get_closest_marker("slow") else 3


def work_unit(nodeid: str) -> str:
    """What a worker takes as a whole: a file, whose tests share what they set up; of those in APART a test."""
    file, _, _ = nodeid.partition("::")
    return nodeid if file in APART else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def skip(items, marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


def parent_of(pid: int) -> int:
    # /proc/N/stat is "N (command) S parent ...", and a command may hold spaces and brackets.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def left_over_processes() -> dict[int, str]:
    """Living processes of this session, but for this one: {pid: command line}. Linux only; elsewhere {}.

    A process counts if it inherited the marker or descends from this process. (One that was forked from here without
    an exec, and whose parent is gone, has neither and is missed.)
    """
    found = {}
    for pid in [int(path.name) for path in Path("/proc").glob("[0-9]*")]:
        with contextlib.suppress(OSError, IndexError):  # it ended, or it is another user's
            line, ancestor = [], pid
            while ancestor > 1:
                line.append(ancestor)
                ancestor = parent_of(ancestor)
            is_marked = MARKER in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and (is_marked or os.getpid() in line):
                command = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
                # A zombie has no command line. Python's resource tracker ends with the process that used it: this one.
                if command and "multiprocessing.resource_tracker" not in command:
                    found[pid] = command[:300]
    return found


@pytest.fixture(scope="module", autouse=True)
def ranks_find_loaded_what_they_import(request):
    """pytest and the package, which the test's file imports: once for the agent, not for each rank (0.3 s each)."""
    if hasattr(request.module, "run_ranks") and request.path.is_relative_to(TESTS):
        from dtlearn.runtime.agent.client import get_agent

        folder, *more = request.path.relative_to(TESTS).parts
        packages = ["models", folder, *BESIDES.get(folder, ())] if more and folder not in PLATFORM else []
        for module in ["pytest", *(f"dtlearn.{package}" for package in packages)]:
            get_agent().load(module)


@pytest.fixture(scope="module", autouse=True)
def starts(request):
    """Real ones in a file that says `REAL_STARTS = True`, see `warm_starts`."""
    warm_starts = sys.modules.get("tests.warm_starts")
    source = warm_starts and warm_starts.current
    if source is None or not getattr(request.module, "REAL_STARTS", False):
        yield
        return
    before, source.on = source.on, False
    yield
    source.on = before


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session):
    """A worker has its source of warm starts from its beginning: notebooks, which know no fixtures, come first."""
    is_worker = hasattr(session.config, "workerinput")
    if sys.platform != "linux" or not (is_worker or session.config.getoption("tx", None)):
        return (yield)
    from tests import warm_starts

    if warm_starts.current is None:  # else this worker is a warm copy
        warm_starts.use(warm_starts.start_source())
    try:
        return (yield)  # in the session that is no worker, pytest-xdist starts all workers here
    finally:
        if not is_worker:
            warm_starts.current.close()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_over():
    """Set up before all other fixtures, so finished after them: by then every process of the tests must be gone."""
    yield
    changed = set[str]()
    if source := getattr(sys.modules.get("tests.warm_starts"), "current", None):
        changed = source.changed_variables()
        source.close()
    if "dtlearn.runtime.agent.client" in sys.modules:
        # The agent lives as long as this process. End it as the end of this process would, and see what remains.
        sys.modules["dtlearn.runtime.agent.client"].close_agent()
    deadline = time.monotonic() + SECONDS_TO_VANISH
    left, num_empty = left_over_processes(), 0
    # Twice empty: one look can miss a process whose parent ends while we look.
    while num_empty < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        left = left_over_processes()
        num_empty = 0 if left else num_empty + 1
    assert not left, f"still alive {SECONDS_TO_VANISH:.0f} s after the last test: {left}"
    assert not changed, f"a test changed {changed} for good: this worker's starts were no longer warm"
