"""Programs that attack the machine, other processes and themselves while they run, and leave files and processes."""

from .hand_in import HandIn, body

_FAILS = ("DTL-TAMPERED", "DTL-LIMIT")  # it was seen what they did
_DIES = (
    "DTL-RANK-STOPPED",
    "DTL-RESULT",
    "DTL-RANK-EXIT",
    "DTL-RANK-KILLED",
    "DTL-RAISED",
    "DTL-STRAGGLER",
    "DTL-TIMEOUT",
    "DTL-LOOP",
)

ON_THE_MACHINE: list[HandIn] = [
    body("exit-0", "ends with status 0", "os._exit(0)", *_DIES, few=True),
    body("abort", "aborts", "os.abort()", *_DIES),
    body("segfault", "reads address 0", "import ctypes; ctypes.string_at(0)", *_DIES),
    body("kill-self", "kills itself", "os.kill(os.getpid(), signal.SIGKILL)", *_DIES),
    body("stop-self", "stops itself", "os.kill(os.getpid(), signal.SIGSTOP)", *_DIES),
    body("kill-parent", "kills what started it", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(1)", *_DIES, ""),
    body("stop-parent", "stops what started it", "os.kill(os.getppid(), signal.SIGSTOP); time.sleep(1)", *_DIES, ""),
    body("stop-first", "stops process 1", "os.kill(1, signal.SIGSTOP); time.sleep(1)", *_DIES, ""),
    body("stop-all", "stops all that it may", "os.kill(-1, signal.SIGSTOP); time.sleep(1)", *_DIES, ""),
    body(
        "stop-above",
        "stops all that stand above it, the nearest last",
        """
        above = [os.getppid()]
        while above[-1] > 1:
            above.append(int(pathlib.Path(f"/proc/{above[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
        for pid in reversed(above):
            if pid > 0:
                os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        """,
        *_DIES,
        "",
    ),
    body(
        "stop-again",
        "a process that stops it and lets it go on, without end",
        """
        here = os.getpid()
        if os.fork() == 0:
            while True:
                os.kill(here, signal.SIGSTOP)
                time.sleep(0.01)
                os.kill(here, signal.SIGCONT)
        time.sleep(1)
        """,
        *_DIES,
        "DTL-LEAK",
        "",
    ),
    body("kill-all", "kills all that it may", "os.kill(-1, signal.SIGKILL); time.sleep(1)", *_DIES, few=True),
    body(
        "fork-bomb",
        "forks without end",
        """
        try:
            while True:
                os.fork()
        except OSError:
            time.sleep(60)
        """,
        *_DIES,
    ),
    # The load is its own: it must not be taken for the machine's, for which there is no verdict.
    body(
        "load-of-its-own",
        "60 processes that compute, so that it gets no processor itself",
        """
        for _ in range(60):
            if os.fork() == 0:
                time.sleep(0.5)
                break
        while True:
            pass
        """,
        *_DIES,
    ),
    body(
        "thread-bomb",
        "100,000 threads",
        "[threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(100_000)]",
        *_DIES,
        "DTL-LEAK",
    ),
    body("memory", "asks for 1 TiB", "keep = [bytearray(1 << 28) for _ in range(4096)]", *_DIES, "DTL-OOM"),
    body("spin", "counts without end", "while True: pass", *_DIES),
    body("sleeps", "sleeps for an hour", "time.sleep(3600)", *_DIES),
    body(
        "ignores-signals",
        "ignores every signal, and sleeps",
        """
        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except OSError:
                pass
        time.sleep(3600)
        """,
        *_DIES,
    ),
    body(
        "descriptors",
        "opens files until there are no more",
        "keep = [open('/dev/null') for _ in range(1 << 20)]",
        *_DIES,
    ),
    body("prints", "prints without end", "while True: print('x' * 65_536)", *_DIES),
    body(
        "message-1gb",
        "an exception with a message of 1 GB",
        "raise ValueError('x' * (1 << 30))",
        *_DIES,
        "DTL-LIMIT",
        few=True,
    ),
    body("message-lines", "an exception with ten million lines", "raise ValueError('x\\n' * 10_000_000)", *_DIES),
    body(
        "message-escapes",
        "an exception that steers terminals",
        "raise ValueError('\\x1b[2J\\x1b]0;owned\\x07\\u202e</script>=1+1')",
        *_DIES,
    ),
    body(
        "message-raises",
        "an exception whose text raises",
        """
        class Mean(Exception):
            def __str__(self):
                raise self
        raise Mean()
        """,
        *_DIES,
    ),
    body(
        "message-loops",
        "an exception whose text never ends",
        """
        class Mean(Exception):
            def __str__(self):
                while True:
                    pass
        raise Mean()
        """,
        *_DIES,
    ),
    body(
        "cause-loop",
        "an exception that is its own cause's cause",
        """
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first
        raise first
        """,
        *_DIES,
    ),
    body("exit-object", "SystemExit with an object", "raise SystemExit(object())", *_DIES),
    body("recursion", "calls itself without end", "return average(x)", *_DIES),
    body(
        "deep-value",
        "returns a list nested 100,000 deep",
        """
        value = []
        for _ in range(100_000):
            value = [value]
        return value
        """,
        *_DIES,
        *_FAILS,
        "DTL-VALUE",
        "DTL-VALUE-TYPE",
    ),
    body("big-value", "returns 8 GB", "return torch.zeros(1 << 31)", *_DIES, *_FAILS, "DTL-OOM", "DTL-VALUE-SHAPE"),
    body(
        "odd-value",
        "returns an object that answers everything with True",
        """
        class Yes:
            def __getattr__(self, name): return lambda *a, **k: True
            def __eq__(self, other): return True
            def __reduce__(self): return (os.system, ("true",))
        return Yes()
        """,
        *_DIES,
        "DTL-VALUE-TYPE",
        "DTL-VALUE",
    ),
]

FILES: list[HandIn] = [
    body(
        "deep-folders",
        "3,000 folders, one in the other",
        """
        os.chdir(tempfile.gettempdir())
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        raise ValueError("made")
        """,
        *_DIES,
        few=True,
    ),
    body(
        "many-files",
        "20,000 files",
        """
        folder = tempfile.mkdtemp()
        for k in range(20_000):
            open(f"{folder}/{k}", "w").close()
        raise ValueError("made")
        """,
        *_DIES,
    ),
    body(
        "locked-folder",
        "a folder that nobody may enter",
        """
        folder = tempfile.mkdtemp()
        os.makedirs(folder + "/a/b")
        os.chmod(folder + "/a", 0)
        raise ValueError("made")
        """,
        *_DIES,
    ),
    body(
        "run-folder",
        "deletes all that it may",
        """
        import shutil
        shutil.rmtree(os.path.dirname(logs()[0][1]), ignore_errors=True)
        shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
        raise ValueError("deleted")
        """,
        *_DIES,
        *_FAILS,
    ),
    body(
        "disk",
        "fills the disk",
        """
        with open(tempfile.gettempdir() + "/big", "wb") as file:
            while True:
                file.write(bytes(1 << 24))
        """,
        *_DIES,
    ),
    body(
        "shm",
        "a file in /dev/shm that should stay",
        """
        open("/dev/shm/dtlearn-hostile", "w").write("x")
        raise ValueError("made")
        """,
        *_DIES,
    ),
    body(
        "daemon",
        "a process that should stay",
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        raise ValueError("started")
        """,
        *_DIES,
        few=True,
    ),
    body(
        "network",
        "sends its input away",
        """
        with socket.create_connection(("192.0.2.1", 80), timeout=1) as line:
            line.sendall(b"x")
        """,
        *_DIES,
    ),
]
