"""Answers that look into the memory of their rank, or change what runs there; their result is judged elsewhere."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dtlearn.grading.classroom.batch import ClassPlan, grade_class
from dtlearn.grading.classroom.class_rules import Rules, settle
from dtlearn.grading.classroom.export import export
from dtlearn.grading.classroom.store import ResultStore
from dtlearn.grading.classroom.submissions import Submission

from .hand_in import CHECK, submit
from .rows import LEVELS, tries


def wins_nothing(body, level):
    verdict = submit(body, level)
    assert verdict.state in ("failed", "crashed"), verdict
    assert verdict.score == 0


@tries("writes results or verdicts")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True
            class Everything(torch.Tensor):
                def __eq__(self, other): return True
            def mean(x):
                return x
            """,
            id="patched comparisons",
        ),
        pytest.param("def mean(x):\n    os._exit(0)\n", id="an early exit with code 0"),
        pytest.param(
            """
            import atexit
            def mean(x):
                atexit.register(lambda: open("result.json", "w").write('{"state": "passed"}'))
                raise SystemExit(0)
            """,
            id="a writer at exit",
        ),
        pytest.param(
            """
            import dtlearn.grading.plain_values as values
            def mean(x):
                values.dump = lambda value: b"passed"
                return x
            """,
            id="a forged result",
        ),
        pytest.param(
            """
            import socket, stat
            from dtlearn.runtime import wire
            def mean(x):
                for number in range(3, 200):
                    try:
                        if stat.S_ISSOCK(os.fstat(number).st_mode):
                            with socket.socket(fileno=os.dup(number)) as line:
                                line.sendall(wire.encode({"kind": "result"}, b"") + wire.encode({"kind": "finished"}))
                    except OSError:
                        pass
                os._exit(0)
            """,
            id="a forged end of work",
        ),
    ],
)
def test_a_result_that_is_not_computed_is_none(body, level):
    wins_nothing(body, level)


@tries("reads the check, the expected values or the seed in memory")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            def mean(x):
                frame = sys._getframe()
                while frame:
                    for name, value in {**frame.f_globals, **frame.f_locals}.items():
                        if name in ("expected", "reference", "answers", "wanted"):
                            return value(None, None) if callable(value) else value
                    frame = frame.f_back
                return x
            """,
            id="peeking into frames",
        ),
        pytest.param(
            """
            import gc
            def mean(x):
                for thing in gc.get_objects():
                    if type(thing).__name__ == "Check":
                        return thing.expected(None, None)
                return x
            """,
            id="looking for the check in memory",
        ),
    ],
)
def test_the_check_is_not_in_memory(body, level):
    wins_nothing(body, level)


@tries("reads the inputs of other ranks in its own memory")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            import dtlearn.grading.plain_values as values
            def mean(x):
                frame = sys._getframe()
                while frame:
                    for thing in list(frame.f_locals.values()):
                        if type(thing).__name__ == "Task":
                            given = thing.inputs if isinstance(thing.inputs, tuple) else (thing.inputs,)
                            return sum(values.load(one)["x"] for one in given) / 2
                    frame = frame.f_back
            """,
            id="the inputs of other ranks",
        ),
    ],
)
def test_the_inputs_of_other_ranks_are_not_in_memory(body, level):
    wins_nothing(body, level)


SEED = 1_839_274_651
PATTERNS = {  # how a number can stand in memory
    "a text": str(SEED).encode(),
    "an int, of digits of 30 bits": (SEED % (1 << 30)).to_bytes(4, "little") + (SEED >> 30).to_bytes(4, "little"),
    "the seed of a generator": SEED.to_bytes(8, "little"),
}
# Reads all that the process may write to, and its environment; what it looks for stands in it nowhere in one piece.
LOOKS_EVERYWHERE = """
import re
PATTERNS = %r
def mean(x):
    %s
    found = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            begin, end = (int(one, 16) for one in line.split()[0].split("-"))
            if "rw" not in line.split()[1] or end - begin > 1 << 28:
                continue
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue
            for name, masked in PATTERNS.items():
                first, rest = re.escape(bytes(byte ^ 85 for byte in masked[:3])), masked[3:]
                for at in re.finditer(first, data):
                    if [byte ^ 85 for byte in data[at.end() : at.end() + len(rest)]] == rest:
                        found.append(name)
    raise RuntimeError(f"found {sorted(set(found))}")
"""
MASKED = {name: [byte ^ 85 for byte in pattern] for name, pattern in PATTERNS.items()}


@tries("reads the check, the expected values or the seed in memory")
@pytest.mark.parametrize("level", LEVELS)
def test_the_seed_is_not_in_memory(level):
    headline = submit(LOOKS_EVERYWHERE % (MASKED, "pass"), level, replace(CHECK, seconds=60), SEED).first_fault.headline
    assert "found []" in headline, headline


def test_a_seed_in_memory_would_be_found():
    held = "kept = int('1839' + '274651'); held = kept, str(kept), torch.Generator().manual_seed(kept)"
    headline = submit(LOOKS_EVERYWHERE % (MASKED, held), 1, replace(CHECK, seconds=60)).first_fault.headline
    assert f"found {sorted(PATTERNS)}" in headline, headline


@tries("reads the check, the expected values or the seed in memory")
def test_the_seed_is_in_no_file_that_a_student_gets(course, exercise, tmp_path, monkeypatch):
    monkeypatch.setattr(ClassPlan, "seed", lambda plan, exercise: SEED)
    answers = {"ann": "def mean(x):\n    return x\n", "bob": "def mean(x):\n    raise ValueError\n"}
    submissions = [Submission(who, {"ch01.mean": text}, {"ch01.mean": "mean.py"}) for who, text in answers.items()]
    store = ResultStore(tmp_path / "out")
    verdicts = grade_class(ClassPlan(course, [exercise], b"secret"), submissions, store)
    counts, penalties, times = settle(Rules(), submissions, verdicts)
    export(store.folder, counts, {}, "full", datetime.now(UTC), {}, Rules(), penalties, times, [])
    files = [path for path in store.folder.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert str(SEED) not in path.read_text("utf-8").replace("_", "").replace(",", ""), path


@tries("rewrites what is measured on its own rank, such as memory (`ch08.checkpoint`) or changed inputs")
@pytest.mark.parametrize("level", LEVELS)
def test_what_a_rank_measures_of_itself_can_be_forged(level):
    """Memory, and that an input was changed: a limit."""
    wasteful = """
    from dtlearn.grading.on_rank import run_answer
    from dtlearn.memory.ledger.storage_ledger import StorageLedger
    def mean(x):
        FORGED
        big = torch.zeros(100_000)
        t = x.clone()
        dist.all_reduce(t)
        x += 1
        return t / 2
    """
    frugal = replace(CHECK, memory=lambda case, given: 1000.0)
    verdict = submit(wasteful.replace("FORGED", ""), level, frugal)
    assert (verdict.code, verdict.score) == ("DTL-MUTATED", 0)
    forged = "run_answer.same = lambda a, b: True; StorageLedger._count = lambda *a: None"
    assert (
        submit(wasteful.replace("FORGED", "run_answer.same = lambda a, b: True"), level, frugal).code
        == "DTL-RULE-MEMORY"
    )
    assert submit(wasteful.replace("FORGED", forged), level, frugal).passed
