"""Programs that want credit without an answer: solutions, classmates, other ranks' inputs, forged values and times.

`{root}` in them is the folder of the course; the class lies in it, as `submissions/`.
"""

from .hand_in import HEAD, HandIn, body, text

_FAILS = ("DTL-RAISED", "DTL-VALUE")
_KNOWN = ("",)  # passes where nothing is hidden: a limit, which the instructor's guide states

READS: list[HandIn] = [
    body(
        "reads-git",
        "takes the solution from the history",
        """
        source = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", "{root}", "show", "HEAD:solutions/ch01_small/average.py"],
            capture_output=True, check=True, text=True).stdout
        names = {}
        exec(source, names)
        return names["average"](x)
        """,
        *_FAILS,
        open_codes=_KNOWN,
        few=True,
    ),
    body(
        "reads-git-files",
        "reads the objects of the history",
        """
        found = list(pathlib.Path("{root}/.git").rglob("*"))
        assert found
        """,
        *_FAILS,
        open_codes=_KNOWN,
    ),
    body(
        "reads-solution",
        "runs the solution",
        """
        names = {}
        exec(open("{root}/solutions/ch01_small/average.py").read(), names)
        return names["average"](x)
        """,
        *_FAILS,
        open_codes=_KNOWN,
        few=True,
    ),
    body(
        "reads-check",
        "reads the check",
        "assert open('{root}/dtlearn/checks/ch01_small/average.py').read()",
        *_FAILS,
        open_codes=_KNOWN,
    ),
    body(
        "reads-classmate",
        "runs a classmate's answer",
        """
        names = {}
        exec(open("{root}/submissions/honest-0/average.py").read(), names)
        return names["average"](x)
        """,
        *_FAILS,
        open_codes=_KNOWN,
        few=True,
    ),
    body("reads-classmates", "lists the class", "assert os.listdir('{root}/submissions')", *_FAILS, open_codes=_KNOWN),
    body("reads-results", "lists the results", "assert os.listdir('{root}/results')", *_FAILS, open_codes=_KNOWN),
    body(
        "reads-secret",
        "reads the secret of the seeds",
        "assert open('{root}/results.secret').read()",
        *_FAILS,
        open_codes=_KNOWN,
    ),
    body(
        "reads-parents",
        "reads what its parents have open",
        """
        found = []
        for number in os.listdir("/proc"):
            if number.isdigit():
                found += pathlib.Path(f"/proc/{number}/fd").iterdir()
        assert any("solutions" in os.readlink(f) for f in found)
        """,
        *_FAILS,
    ),
    body(
        "writes-results",
        "writes a verdict",
        """
        path = pathlib.Path("{root}/results/writes-results")
        path.mkdir(parents=True, exist_ok=True)
        (path / "ch01.average.json").write_text('{"state": "passed"}')
        raise ValueError("written")
        """,
        *_FAILS,
    ),
    body(
        "writes-classmate",
        "replaces a classmate's answer",
        """
        open("{root}/submissions/honest-1/average.py", "w").write("")
        """,
        *_FAILS,
        open_codes=_FAILS + _KNOWN,
    ),
]
_WALK = """
    values, seen = [], set()
    frame = sys._getframe()
    while frame:
        values += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    for thing in [*values, *gc.get_objects()]:
        thing = getattr(thing, "inputs", thing)
        if not isinstance(thing, list) or not len(thing) == dist.get_world_size() > 1:
            continue
        if all(isinstance(i, dict) and "x" in i for i in thing):
            return sum(i["x"] for i in thing) / len(thing)
    raise ValueError("not found")
"""
CHEATS: list[HandIn] = [
    body(
        "walks-frames",
        "computes the answer from all ranks' inputs, which it looks for in memory",
        _WALK,
        *_FAILS,
        few=True,
    ),
    body(
        "patched-compare",
        "replaces torch's comparisons",
        """
        torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True
        torch.Tensor.__eq__ = lambda *a: True
        return x * 0
        """,
        *_FAILS,
    ),
    body(
        "patched-dump",
        "replaces what packs its result",
        """
        import dtlearn.grading.plain_values as values
        values.dump = lambda value: b"passed"
        return x * 0
        """,
        *_FAILS,
        "DTL-TAMPERED",
        "DTL-RESULT",
        "DTL-RANK-EXIT",
    ),
    body(
        "patched-time",
        "stops its clocks",
        """
        time.monotonic_ns = time.perf_counter_ns = time.time_ns = lambda: 0
        time.monotonic = time.perf_counter = time.time = lambda: 0.0
        return x * 0
        """,
        *_FAILS,
    ),
    body(
        "seeds",
        "makes the inputs from small seeds",
        """
        for seed in range(1000):
            g = torch.Generator().manual_seed(seed)
            if torch.equal(torch.randn(3, generator=g), x):
                raise ValueError(f"seed {seed}")
        return x * 0
        """,
        *_FAILS,
    ),
    body(
        "checks-in-memory",
        "looks for the check in memory",
        """
        for thing in gc.get_objects():
            if type(thing).__name__ == "Check":
                raise ValueError("found")
        return x * 0
        """,
        *_FAILS,
    ),
    text(
        "at-exit",
        "writes a result at exit",
        HEAD
        + """
import atexit
def average(x):
    atexit.register(lambda: print('{"state": "passed", "score": 4}'))
    raise SystemExit(0)
""",
        *_FAILS,
        "DTL-RANK-EXIT",
    ),
    text("at-import", "ends while it is imported", HEAD + "os._exit(0)\n", *_FAILS, "DTL-RANK-EXIT"),
    text(
        "hangs-at-import",
        "sleeps while it is imported",
        HEAD + "time.sleep(3600)\n",
        "DTL-TIMEOUT",
        "DTL-STRAGGLER",
        "DTL-LOOP",
    ),
]
