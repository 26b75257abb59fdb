"""Answers that read or write files: the course's, the class's, the instructor's, and those that ranks share."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dtlearn
from dtlearn.grading.check import Finding
from dtlearn.grading.classroom.batch import ClassPlan, grade_class, shut_in
from dtlearn.grading.classroom.store import ResultStore
from dtlearn.grading.classroom.submissions import Submission
from dtlearn.runtime.machine.isolation import Isolation
from tests.grading.small_course import commit

from .hand_in import CHECK, HEAD, submit
from .rows import LEVELS, needs_level_2, tries

ROOT = Path(dtlearn.__file__).parents[1]
SOLUTION = """
def mean(x):
    names = {}
    exec(open(%r).read(), names)
    return names["mean"](x)
"""
READ = """
def mean(x):
    found = []
    for path in %r:
        try:
            found += [path] if os.path.isfile(path) and open(path, "rb").read() or os.listdir(path) else []
        except OSError:
            pass
    raise RuntimeError(f"read {found}")
"""


@pytest.fixture
def private(course, tmp_path_factory):
    """What an answer would like to read: `{what it is: path}`. It lies in many places."""
    root, elsewhere = course.root, tmp_path_factory.mktemp("another place")
    here = {name: root / name / "mean.py" for name in ("solutions", "tests", "notebooks", "work", "class/bob")}
    home = {name: elsewhere / name / "mean.py" for name in ("a home", "a second checkout/solutions", "other class/eve")}
    for path in (*here.values(), *home.values()):
        path.parent.mkdir(parents=True)
        path.write_text("found")
    commit(root)
    subprocess.run(["git", "worktree", "add", "-q", str(elsewhere / "tree")], cwd=root, check=True, capture_output=True)
    (elsewhere / "by another name").symlink_to(root / "solutions")
    found = {**here, **home, "the history": root / ".git" / "HEAD", "a worktree's": elsewhere / "tree" / ".git"}
    found |= {
        "a link": elsewhere / "by another name" / "mean.py",
        "the check": root / "dtlearn/checks/ch01_ranks/mean.py",
    }
    found |= {"this checkout": ROOT / "tests" / "conftest.py", "its check": ROOT / "dtlearn/checks/own_work.py"}
    found |= {"its solutions": ROOT / "solutions", "this home": Path.home() / ".bashrc"}
    return {what: path for what, path in found.items() if os.access(path, os.R_OK)}


@tries("reads solutions, the history of the course, checks, classmates' files")
def test_level_1_shows_everything(course, private):
    said = submit(READ % [str(path) for path in private.values()], shut_in(course, 1)).first_fault.headline
    assert all(repr(str(path)) in said for path in private.values() if path.is_file()), said  # the reason for level 2


@tries("reads solutions, the history of the course, checks, classmates' files")
@needs_level_2
def test_level_2_shows_nothing_of_it(course, private, tmp_path, monkeypatch):
    monkeypatch.chdir(course.root)
    more = course.root / "class", course.root / "no such folder", None
    said = submit(READ % [str(path) for path in private.values()], shut_in(course, 2, *more)).first_fault.headline
    assert "read []" in said, said


@tries("reads solutions, the history of the course, checks, classmates' files")
@needs_level_2
def test_a_solution_wins_at_level_1_and_nothing_at_level_2(course, right):
    path = course.root / "solutions" / "mean.py"
    path.parent.mkdir()
    path.write_text(right)
    assert submit(SOLUTION % str(path), shut_in(course, 1)).passed
    verdict = submit(SOLUTION % str(path), shut_in(course, 2))
    assert verdict.state == "failed" and "FileNotFoundError" in verdict.first_fault.headline


@needs_level_2
def test_all_that_can_be_seen_outside_the_system_is_listed(course, tmp_path, monkeypatch):
    """A walk over everything: what is no folder of the system's, of Python's, the package's or the run's is empty."""
    monkeypatch.chdir(tmp_path)
    walk = """
    def mean(x):
        shown, found = %r, []
        system = ("/bin", "/etc", "/lib", "/sbin", "/usr", "/proc", "/sys", "/nix", "/gnu", "/snap")
        for folder, folders, files in os.walk("/"):
            folders[:] = [f for f in folders if not os.path.join(folder, f).startswith((*system, *shown))]
            paths = [os.path.join(folder, f) for f in files]
            paths = [p for p in paths if not p.startswith((*system, *shown)) and os.path.isfile(p)]
            found += [p for p in paths if open(p, "rb").read(1)]
        raise RuntimeError(f"read {found[:20]}, {os.getcwd()}")
    """
    isolation = shut_in(course, 2)
    shown = tuple(name for path in isolation.shown for name in (path, os.path.realpath(path)))
    said = submit(walk % (shown,), isolation).first_fault.headline
    where = said.partition("], ")[2]
    files = [name for name in said.partition("[")[2].partition("]")[0].split(", ") if name]
    assert all("/dtlearn-" in name for name in files), said  # of the run itself
    assert where and not where.startswith(str(tmp_path)), said  # a folder that others may read is no place to work in


@tries("writes results or verdicts")
@needs_level_2
def test_level_2_keeps_files_from_being_changed_and_level_1_does_not(tmp_path):
    target = tmp_path / "results.json"
    body = f"""
    def mean(x):
        open({str(target)!r}, "w").write({json.dumps({"state": "passed"})!r})
        return x
    """
    assert submit(body, 2).state == "failed"
    assert not target.exists()
    submit(body, 1)
    assert target.exists()  # a limit: so verdicts are written after the run, over whatever is there


@tries("writes results or verdicts")
@pytest.mark.parametrize("level", LEVELS)
def test_a_verdict_that_an_answer_writes_is_not_taken(course, exercise, tmp_path, level):
    store = ResultStore(tmp_path / "out")
    honest = Submission("ann", {"ch01.mean": "def mean(x):\n    return x\n"}, {"ch01.mean": "mean.py"})
    plan = ClassPlan(course, [exercise], b"secret", isolation=shut_in(course, level, store.folder))
    (failed,) = grade_class(plan, [honest], store)["ann"]
    (path,) = (store.folder / "ann").glob("*.json")
    forged = json.dumps({**json.loads(path.read_text()), "state": "passed", "score": 4.0})
    writes = f"""
def mean(x):
    for who in ("ann", "bob"):
        os.makedirs({str(store.folder)!r} + "/" + who, exist_ok=True)
        open({str(store.folder)!r} + "/" + who + "/" + {path.name!r}, "w").write({forged!r})
    return x
"""
    cheat = replace(honest, student="bob", answers={"ch01.mean": HEAD + writes})
    assert not any(v.passed or v.score for v in grade_class(plan, [cheat], store)["bob"])
    assert not store.load("bob", exercise.id, HEAD + writes).passed
    if level == 2:
        assert store.load("ann", exercise.id, honest.answers["ch01.mean"]) == failed


@tries("does the work through files that its ranks share, not by calls")
@pytest.mark.parametrize("level", LEVELS)
def test_files_between_ranks_are_not_stopped_but_a_rule_on_calls_is(level):
    """Ranks of one run share a folder for temporary files: a mean can be computed through it."""
    body = """
    import tempfile, time, pathlib
    def mean(x):
        folder = pathlib.Path(tempfile.gettempdir()) / f"shared-{os.environ['DTLEARN_TEST_SESSION']}"
        folder.mkdir(exist_ok=True)
        rank = dist.get_rank()
        torch.save(x, folder / f"{rank}.new")
        (folder / f"{rank}.new").rename(folder / f"{rank}.pt")
        while len(list(folder.glob("*.pt"))) < 2:
            time.sleep(0.01)
        parts = [torch.load(folder / f"{r}.pt") for r in range(2)]
        (folder / f"{rank}.done").touch()
        while rank == 0 and len(list(folder.glob("*.done"))) < 2:
            time.sleep(0.01)
        if rank == 0:
            import shutil
            shutil.rmtree(folder)
        return sum(parts) / 2
    """
    assert submit(body, level).passed  # a limit

    def reduces(case, given, record):
        return None if record.select(op="all_reduce").events else Finding("DTL-RULE-CALLS", "no all_reduce")

    ruled = replace(CHECK, rules=[reduces])
    verdict = submit(body, level, ruled)
    assert (verdict.state, verdict.code) == ("failed", "DTL-RULE-CALLS")


def test_a_level_that_is_refused_is_said_with_the_way_out(course, monkeypatch):
    monkeypatch.setattr("dtlearn.grading.classroom.batch.best", lambda level: Isolation(1))
    with pytest.raises(ValueError, match="--trust-submissions"):
        shut_in(course, 2)


@needs_level_2
@pytest.mark.parametrize("folder", [ROOT, ROOT / "dtlearn", Path(sys.prefix), Path(sys.base_prefix) / "lib"])
def test_a_folder_that_holds_the_package_cannot_be_hidden(course, folder):
    with pytest.raises(ValueError, match="holds the package, which submissions need"):
        shut_in(course, 2, folder)


@needs_level_2
def test_no_folder_of_work_is_taken_for_one_of_libraries(course, tmp_path, monkeypatch):
    """Those of `sys.path` are shown, but not one that is a course's, or somebody's, or above such a one."""
    home, libraries, there = tmp_path / "my home", tmp_path / "some libraries", tmp_path / "there"
    for folder in (home / "stuff", libraries, there / "class", course.root / "tools"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'lib'}::relative")
    (tmp_path / "lib").mkdir()
    monkeypatch.chdir(home / "stuff")
    paths = ["", "relative", home, home / "stuff", libraries, course.root, course.root / "tools", tmp_path, there, "/"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*map(str, paths), str(tmp_path / "missing")])
        shown = shut_in(replace(course, root=tmp_path / "elsewhere"), 2, there / "class").shown
    assert [Path(p) for p in shown if Path(p).is_relative_to(tmp_path)] == []  # it is a course's itself
    (course.root / "course.toml").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*map(str, paths), str(tmp_path / "missing")])
        shown = shut_in(replace(course, root=tmp_path / "elsewhere"), 2, there / "class").shown
    assert {Path(p).name for p in shown if Path(p).is_relative_to(tmp_path)} == {"some libraries", "tools", "lib"}


@needs_level_2
def test_what_lies_in_a_folder_of_the_system_is_hidden_too(course):
    isolation = shut_in(course, 2, Path("/usr/share"))
    assert "/usr/share" in isolation.hidden and str(course.root) in isolation.hidden
    said = submit(READ % ["/usr/share", "/usr/bin"], isolation).first_fault.headline
    assert "read ['/usr/bin']" in said, said


@needs_level_2
def test_the_class_sees_what_the_answer_needs(course):
    """Python, its libraries, new processes of it, and a folder for temporary files."""
    body = """
    import subprocess, tempfile
    def mean(x):
        import sympy, torch._dynamo, dtlearn.models
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run([sys.executable, "-c", "import numpy, dtlearn"], check=True, stdout=file)
        t = x.clone()
        dist.all_reduce(t)
        return t / 2
    """
    verdict = submit(body, shut_in(course, 2), replace(CHECK, seconds=60))
    assert verdict.passed, verdict.first_fault
