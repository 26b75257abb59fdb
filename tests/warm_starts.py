"""Warm starts: agents, judges, kernels and nodes of labs are forked, in tests, from a process that has torch loaded.

They are new interpreters that load torch: 2 to 4 s of processor time each, and the tests start dozens. In a run with
several workers (pytest-xdist) one process loads everything once, the source. The workers are copies of it, and each has
a source of its own, a copy too. `subprocess.Popen` asks it for a copy where it would start one of these interpreters:

    worker +- source (waits)
           +- agent, judge or kernel: a copy of the source, made as a child of the worker (CLONE_PARENT)
                  +- a judge or kernel has a source of its own (waits), a copy too
                  +- agent of the judge, agent and judge of the kernel: copies of that
                  +- torchrun, for a script of the kernel or of a lab's node, and its processes: copies too

So who starts a process is its parent, as ever: process ids, signals, exit codes and what dies with whom are those of a
real start. Command line, environment, folder, open files and session are, too, and the namespaces of a host: a node
that `ssh` starts there (tests/runtime/hosts.py) is the child of a copy that enters them. Copies are, too, programs of
tests that begin with MAY_BE_WARM, `python -m dtlearn.train`, and what batch scripts start (tests/slurm.py), but not
what else runs in a shell. All other commands are really started (and what they start: accelerate's scripts, the agents
of programs), and so is everything where a test's file says `REAL_STARTS = True`, where pytest runs without workers, and
on systems but Linux: chapter 1 in the browser, for one, and all chapters when they are built. A script that sets
torch's variables before it loads torch is no copy either.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import inspect
import io
import json
import linecache
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import uuid
from pathlib import Path

# What they load; a module that is missing here is loaded after the start, as ever. Not what cells need: matplotlib and
# ipykernel look at the environment of their process when they are loaded.
LOADED = (
    "dtlearn.runtime.agent.server",
    "dtlearn.runtime.recording.recorder",
    "dtlearn.grading.judge_process.server",
    "dtlearn.grading.grader_process.server",
    "dtlearn.grading.on_rank.run_answer",
    "pytest",
    "dtlearn.cli",
    "dtlearn.runtime.lab.node.node",
    "torch._dynamo",  # what cells and optimizers need: 1.3 s for each helper that starts ranks for them
    "torch.distributed.optim",
)
# `torch.manual_seed` keeps its callers' lines, for GPUs that are opened later: a rank would read these files, 1.7 ms.
SEEDING = (
    *("torch.random", "torch.cuda.random", "torch.xpu", "torch.xpu.random", "torch.mtia"),
    *("torch._compile", "torch._dynamo.eval_frame"),
    *(f"dtlearn.runtime.{module}" for module in ("agent.server", "agent.reaper", "agent.forked_ranks")),
    *(f"dtlearn.runtime.rank.{module}" for module in ("main", "task")),
)
HELPER = re.compile(
    r"import signal, sys; .*from dtlearn\.(runtime\.agent\.server|grading\.(?:judge|grader)_process\.server"
    r"|bench\.platform\.other_launchers) import main;"
)
HELPERS = {"grading.judge_process.server": "judge", "bench.platform.other_launchers": "script"}  # the others: "agent"
KERNEL = "ipykernel_launcher"
MODULES = {
    KERNEL: "kernel",
    "dtlearn.runtime.machine.run_guarded": "guard",
    "torch.distributed.run": "launcher",
    "dtlearn.train": "script",
}
# Those of dtlearn.runtime.launch, and of tests of scripts; torch looks for GPUs when somebody asks for one.
SCRIPT_VARIABLES = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
WORKER = "import sys;exec(eval(sys.stdin.readline()))"  # what execnet starts for pytest-xdist
SESSION = "DTLEARN_TEST_SESSION"  # this variable tells the processes of one worker's tests from those of others
MAY_BE_WARM = "# may be warm\n"  # what the text of a test's own program begins with
# `ssh` to a host of tests/runtime/hosts.py, whose fixture sets this variable: what all names of namespaces begin with.
HOSTS = "DTLEARN_TEST_HOSTS"
# Variables that decide how these modules are loaded: where one differs, the start is a real one.
# (Those of sockets are looked at when a group is made. TORCHINDUCTOR_CACHE_DIR is set by torch._dynamo, which every
# optimizer loads, and KMP_DUPLICATE_LIB_OK and KMP_INIT_AT_FORK by scikit-learn: after the first such test of a worker
# all its starts would be real ones.)
MATTER = re.compile(
    r"(?!\w+_SOCKET_IFNAME|TORCHINDUCTOR_CACHE_DIR|KMP_DUPLICATE_LIB_OK|KMP_INIT_AT_FORK)"
    r"(PYTHON|OMP_|MKL_|OPENBLAS_|KMP_|GLIBC_|MALLOC_|LD_|TORCH(?!ELASTIC_|_NCCL_)|PYTORCH|CUDA_|NCCL_|GLOO_|LC_|LANG)"
)
SETS_WHAT_MATTERS = re.compile(r"os\.environ\[.TORCH")  # in a script, before it loads torch
FOLDER = Path(__file__).resolve().parent
ROOT = str(FOLDER.parent)
# No frame of ours stands below those of a copy's program: stacks are shown to learners.
PROGRAM = (
    "import sys; sys.path.append({folder!r}); from warm_starts import main; exec(*main(int(sys.argv[1]), sys.argv[2]))"
)
PADDING = 4096  # bytes, for the command lines of copies
_PR_SET_PDEATHSIG, _PR_GET_TID_ADDRESS, _SYS_CLONE3, _CLONE_PARENT, _CLONE_CHILD_SETTID, _CLONE_CHILD_CLEARTID = (
    1, 40, 435, 0x8000, 0x1000000, 0x200000,
)  # fmt: skip
_execute_child = subprocess.Popen._execute_child
_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, as a fork must


class Source:
    """This process's end of its source.

    Attributes:
        on: whether starts are warm now.
        of_scripts: whether this process is a launcher, whose scripts may be copies too.
        pid: the source's process id.
    """

    def __init__(self, control: socket.socket, of_agents: dict[str, str], process: subprocess.Popen | None) -> None:
        self.on, self.of_scripts = True, False
        self._control, self._of_agents, self._process = control, of_agents, process
        self.pid = process.pid if process else 0
        self._lock = threading.Lock()
        self._environment = which_matter(dict(os.environ))

    def changed_variables(self) -> set[str]:
        """Variables that were changed in this process for good, so that its starts are real ones from then on."""
        return {name for name, _ in which_matter(dict(os.environ)).items() ^ self._environment.items()}

    def close(self) -> None:
        """End the source. What it started lives on."""
        self.on = False
        self._control.close()
        if self._process is not None:
            self._process.kill()  # it may be loading still
            self._process.wait()

    def start(self, popen: subprocess.Popen, options: dict) -> bool:
        """Have a copy made in place of a new interpreter. False: it has to be a new interpreter."""
        if not self.on or not (request := self._request(options)):
            return False
        inner = [options[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        fds = [own if fd == -1 else fd for own, fd in enumerate(inner)] + list(options["pass_fds"])
        request["fds"] = [0, 1, 2, *options["pass_fds"]]
        try:
            with self._lock:
                socket.send_fds(self._control, [json.dumps(request).encode()], fds)
                pid = int(self._control.recv(100))
        except ValueError:  # the folder was deleted, say: a real start tells of it
            return False
        except BaseException as error:  # it was killed, say; or an interrupt leaves an answer unread
            self.on = False
            if not isinstance(error, OSError):
                raise
            return False
        popen.pid, popen._child_created = pid, True
        popen._close_pipe_fds(*(options[name] for name in PIPES))
        return True

    def _request(self, options: dict) -> dict | None:
        args, environment = list(options["args"]), options["env"]
        environment = dict(os.environ if environment is None else environment)
        usual = {"executable": None, "preexec_fn": None, "close_fds": True, "shell": False, "umask": -1}
        usual |= {"gid": None, "gids": None, "uid": None, "process_group": -1}
        if any(options.get(name, value) != value for name, value in usual.items()):
            return None
        host, args = on_host(args, environment)
        kind = kind_of(args, environment, self.of_scripts)
        if kind is None:
            return None
        try:
            folder = os.fspath(options["cwd"] or os.getcwd())
        except FileNotFoundError:
            return None
        differs = (which_matter(environment).items() ^ self._environment.items()) - {("PYTHONPATH", ROOT)}
        if kind in ("guard", "launcher", "script"):
            differs = differs - SCRIPT_VARIABLES.items()
        if differs != (self._of_agents.items() if kind == "agent" else set()):
            return None
        return {
            "command": list(options["args"]),
            "args": args,
            "env": environment,
            "cwd": folder,
            "session": options["start_new_session"],
            "kind": kind,
            "host": host,
        }


PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
current: Source | None = None  # of this process


def source_pid() -> int:
    """The process id of this process's source; 0 if it started none."""
    return current.pid if current else 0


def kind_of(args: list[str], environment: dict[str, str], of_scripts: bool) -> str | None:
    """What a command starts; None if that is to be started really. `of_scripts`: it is a launcher that asks."""
    if args[0] != sys.executable:
        return None
    if args[1:3] == ["-P", "-c"] and (helper := HELPER.match(args[3])):
        return HELPERS.get(helper[1], "agent")
    if args[1:] == ["-u", "-c", WORKER]:
        return "worker"
    if args[1] == "-m":
        return "node" if args[2:4] == ["dtlearn", "node"] else MODULES.get(args[2])
    if args[1] == "-c":
        return "program" if args[2].startswith(MAY_BE_WARM) else None
    return "script" if of_scripts and may_be_a_copy(args[1 + (args[1] == "-u")]) else None


def may_be_a_copy(script: str) -> bool:
    """Whether a file, or "-m" and a module, finds a loaded torch as it would find one that it loads itself."""
    if script == "-m":
        return True
    return os.path.isfile(script) and not SETS_WHAT_MATTERS.search(Path(script).read_text("utf-8", "replace"))


def which_matter(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if MATTER.match(name)}


def on_host(args: list[str], environment: dict[str, str]) -> tuple[list[str] | None, list[str]]:
    """What a command runs on a host, and the arguments of `enter` in tests/runtime/hosts.py; (None, `args`) if none."""
    prefix = environment.get(HOSTS)
    if prefix is None:
        return None, args
    if args[0] == "ssh" and os.path.exists(f"/run/netns/{prefix}{args[-2]}"):
        return [prefix + args[-2], args[-2]], shlex.split(args[-1])
    by_hand = ["ip", "netns", "exec", args[3], "sh", "-c"] if len(args) == 7 else []
    if args[:-1] == by_hand and args[3].startswith(prefix) and args[-1].startswith("exec "):
        return [args[3], ""], shlex.split(args[-1])[1:]
    return None, args


def _start(self, *args, **kwargs):
    options = inspect.signature(_execute_child).bind(self, *args, **kwargs).arguments
    if current is None or not current.start(self, options):
        _execute_child(self, *args, **kwargs)


def use(source: Source) -> None:
    """From now on this process's starts are warm."""
    global current
    current = source
    subprocess.Popen._execute_child = _start


def start_source() -> Source:
    """Start the process that loads everything, in the background."""
    from dtlearn.runtime.agent.client import AGENT_ENVIRONMENT

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        numbers = [str(theirs.fileno()), json.dumps(AGENT_ENVIRONMENT)]
        command = [sys.executable, "-P", "-c", PROGRAM.format(folder=str(FOLDER)), *numbers, " " * PADDING]
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **AGENT_ENVIRONMENT},
        )
    return Source(ours, AGENT_ENVIRONMENT, process)


def main(descriptor: int, environment: str) -> tuple[types.CodeType, dict]:
    """The source's process. Returns in that of a copy, with the program that it runs and its `__main__`."""
    import gc

    of_agents: dict[str, str] = json.loads(environment)
    sys.path[-1:] = [str(FOLDER.parent)]
    from dtlearn.runtime.machine.memory import use_huge_pages
    from dtlearn.runtime.rank import preload

    for module in ("torch", "torch.distributed", "numpy.random", "cloudpickle", *LOADED):
        with contextlib.suppress(ImportError):
            preload.load(module)
    from dtlearn.runtime.recording.recorder import prepare

    prepare()  # as agents do: 50 ms of processor time, and most of their memory written to
    for module in SEEDING:
        if module in sys.modules:
            linecache.getlines(sys.modules[module].__file__ or "")
    gc.collect()
    gc.freeze()
    use_huge_pages()  # copies are cheaper
    control: socket.socket | None = socket.socket(fileno=descriptor)
    while control is not None:
        request, fds = serve(control)
        control = become(request, fds, control, of_agents)
    return program(request["args"][1:])


def program(arguments: list[str]) -> tuple[types.CodeType, dict]:
    """What an interpreter with these arguments runs, and its `__main__`."""
    first, *sys.argv = arguments[1:] if arguments[:2] in (["-u", "-m"], ["-u", "-c"]) else arguments
    sys.modules["__main__"] = main_module = types.ModuleType("__main__")
    if first == "-m":
        if sys.argv[0] != KERNEL:  # which removes it
            sys.path.insert(0, os.getcwd())
        text = f"import runpy; runpy.run_module({sys.argv[0]!r}, run_name='__main__', alter_sys=True)"
        return compile(text, "<string>", "exec"), main_module.__dict__
    if first == "-P":  # and "-c"
        sys.argv = ["-c", *sys.argv[2:]]
        return compile(arguments[2], "<string>", "exec"), main_module.__dict__
    if first == "-c":
        text, sys.argv[0] = sys.argv[0], "-c"
        sys.path.insert(0, "")
        return compile(text, "<string>", "exec"), main_module.__dict__
    sys.argv = arguments[first == "-u" :]
    script = Path(sys.argv[0])
    sys.path.insert(0, str(script.resolve().parent))
    main_module.__file__ = sys.argv[0]
    # Learners see the traceback of a script that fails: without the frame of PROGRAM.
    sys.excepthook = lambda kind, error, stack: sys.__excepthook__(kind, error.with_traceback(stack.tb_next), None)
    return compile(script.read_bytes(), sys.argv[0], "exec"), main_module.__dict__


def unbuffer() -> None:
    """Standard output and error as those of `python -u`."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        old = getattr(sys, name)
        raw = io.FileIO(number, "w", closefd=False)
        raw.name = f"<{name}>"
        new = io.TextIOWrapper(raw, encoding=old.encoding, errors=old.errors, write_through=True)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def serve(control: socket.socket) -> tuple[dict, list[int]]:
    """Make copies until `control` closes. Returns in each copy, with what it was asked for, which has to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1 << 20, 64)
        if not data:
            os._exit(0)
        if fork_beside() == 0:
            return json.loads(data), fds
        for fd in fds:
            os.close(fd)


def fork_beside() -> int:
    """Fork; the new process is a child of this one's parent."""
    thread_id = ctypes.c_ulong()
    _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(thread_id), 0, 0, 0)  # where the C library keeps its thread's number
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    arguments = (ctypes.c_uint64 * 8)(flags, 0, thread_id.value, 0, 0, 0, 0, 0)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _libc.syscall(_SYS_CLONE3, arguments, ctypes.sizeof(arguments))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def become(request: dict, fds: list[int], control: socket.socket, of_agents: dict[str, str]) -> socket.socket | None:
    """Be what was asked for: None. Or be the source of that process: where requests come from."""
    from dtlearn.runtime.machine.processes import close_all_but

    answer, *high = (fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for fd in (control.detach(), *fds))
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
        if request["session"]:
            os.setsid()
        for number, fd in zip(request["fds"], high, strict=True):
            os.dup2(fd, number)
        close_all_but({*request["fds"], answer})
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        if os.environ.get("PYTHONPATH") == ROOT and ROOT not in sys.path[:-1]:
            sys.path.insert(0, ROOT)
        tempfile.tempdir = None
        show_command(request["command"])
        # As with a real start, it is a leader of its session before anybody hears of it.
        os.write(answer, str(os.getpid()).encode())
    except BaseException:
        os.write(answer, b"no")
        os._exit(70)
    os.close(answer)
    if request["host"]:
        from tests.runtime.hosts import enter

        enter(*request["host"])
        show_command(request["args"])
    if request["kind"] == "worker":
        begin_session()
    source = None
    if request["kind"] not in ("agent", "script"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            os.setsid()  # a kernel's end waits for the processes of its group
            show_command([sys.executable, "(source of warm starts)"])
            with open(os.devnull, "r+b", buffering=0) as null:
                for number in (0, 1, 2):
                    os.dup2(null.fileno(), number)
            close_all_but({0, 1, 2, theirs.fileno()})
            return theirs
        theirs.close()
        source = Source(ours, of_agents, None)
        source.pid = pid
        source.of_scripts = request["kind"] in ("guard", "launcher")
    if request["kind"] != "agent":
        take_recorder_away()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTHONUNBUFFERED" in os.environ or request["args"][1] == "-u":
        unbuffer()
    if request["kind"] != "agent":
        import torch

        # As where OMP_NUM_THREADS is not set, if it is not.
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    if source is not None:
        use(source)
    return None


def begin_session() -> None:
    """Be a worker, whose processes are told from those of the other workers by what the system shows, as if started."""
    before, os.environ[SESSION] = os.environ[SESSION], uuid.uuid4().hex
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[47]), int(fields[48])  # env_start and env_end
    place = begin + ctypes.string_at(begin, end - begin).index(before.encode())
    ctypes.memmove(place, os.environ[SESSION].encode(), len(before))
    sys.modules["tests.warm_starts"] = sys.modules[__name__]  # the tests' conftest looks there, and begins no other one


def take_recorder_away() -> None:
    """Only agents have what sees calls and phases in place from their beginning."""
    from dtlearn.runtime.recording import dispatch, phases, python_calls

    python_calls.PYTHON_CALLS.detach()
    phases.PHASES.detach()
    dispatch.KERNELS.uninstall()


def show_command(args: list[str]) -> None:
    """Have the system show this as the command line of this process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
    line = "\0".join(args).encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, line, len(line))
