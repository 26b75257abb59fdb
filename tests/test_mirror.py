"""`tests/` mirrors `dtlearn/` and `tools/`: dtlearn/a/b.py has tests/a/test_b.py, and the other way round.

What differs stands in one of the two tables, with the reason; an entry that nothing needs any more fails.
"""

from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Modules without a test file of their own name, the test that goes through them, and why that one.
TESTED_BY = {
    "bench/bench": ("cli/test_bench.py", "it holds what every bench gives to the command, which lists and runs them"),
    "bench/chapters/memory_peaks": ("bench/chapters/test_memory.py", "one of the measurements of that bench"),
    "bench/chapters/on_ranks/gradient_compression_ways": (
        "bench/chapters/test_gradient_compression.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/context_parallel_ways": (
        "bench/chapters/test_context_parallel.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/communication_scheduling_ways": (
        "bench/chapters/test_communication_scheduling.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/hybrid_parallel_ways": (
        "bench/chapters/test_hybrid_parallel.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/expert_parallel_ways": (
        "bench/chapters/test_expert_parallel.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/parameter_server_ways": (
        "bench/chapters/test_parameter_server.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/pipeline_emulated": (
        "bench/chapters/test_pipeline.py",
        "one of the measurements of that bench",
    ),
    "bench/chapters/on_ranks/tensor_parallel_blocks": (
        "bench/chapters/test_tensor_parallel.py",
        "what that bench compares",
    ),
    "bench/chapters/on_ranks/zero_ways": ("bench/chapters/test_zero.py", "what that bench compares"),
    "checks/*/*": (
        "course/test_exercises.py",
        "a check is right if it judges the solution, the stub and the wrong answers as it should",
    ),
    "collectives/algorithms/*": ("collectives/test_algorithms.py", "all plans have to keep the same rules"),
    "collectives/reduction": (
        "collectives/test_primitives.py",
        "each reduction through the collectives that take one, beside torch's",
    ),
    "data_parallel/large_batch/lamb": (
        "data_parallel/large_batch/test_lars_lamb.py",
        "the two optimizers are tested in one way",
    ),
    "data_parallel/large_batch/lars": (
        "data_parallel/large_batch/test_lars_lamb.py",
        "the two optimizers are tested in one way",
    ),
    "grading/classroom/export": ("cli/exercises/test_grade_class.py", "it writes what the command leaves behind"),
    "grading/grader_process/grader": (
        "grading/grader_process/test_client.py",
        "it is a process of its own, reached through its client only",
    ),
    "grading/grader_process/server": (
        "grading/grader_process/test_client.py",
        "it is a process of its own, reached through its client only",
    ),
    "grading/judging/judge_cases": (
        "grading/judging/test_grade.py",
        "a grading goes through it case by case, and says what came of each",
    ),
    "grading/judge_process/server": (
        "grading/judge_process/test_client.py",
        "it is a process of its own, reached through its client only",
    ),
    "libraries/comparing/on_ranks": ("libraries/comparing/test_stored.py", "the ranks' half of every run"),
    "libraries/comparing/requests": ("libraries/comparing/test_stored.py", "each of them is stored, and run again"),
    "libraries/engines/[!r]*": (
        "libraries/comparing/test_stored.py",
        "every engine's losses and calls are stored, and a real run is held against them",
    ),
    "production/bug_lab/causes": (
        "production/bug_lab/test_lab_program.py",
        "a table, beside the programs' data",
    ),
    "production/bug_lab/programs/*": ("production/bug_lab/test_programs.py", "each shows its symptom, on real ranks"),
    "runtime/agent/start": (
        "runtime/agent/test_server.py",
        "whoever starts ranks calls it: through runs, that test counts the descriptors that it opens and closes",
    ),
    "runtime/lab/head/launch": ("runtime/lab/head/test_agent.py", "it takes two hosts, which that test has"),
    "runtime/lab/head/members": ("runtime/lab/head/test_agent.py", "it takes two hosts, which that test has"),
    "runtime/lab/head/node_agent": ("runtime/lab/head/test_agent.py", "it takes two hosts, which that test has"),
    "runtime/lab/head/reachability": (
        "cli/doctor/test_lab.py",
        "it takes two hosts without a way between them, which that test has",
    ),
    "runtime/lab/head/store": ("runtime/lab/head/test_agent.py", "it takes two hosts, which that test has"),
    "runtime/lab/node/*": (
        "runtime/lab/head/test_agent.py",
        "a node is a process on another host, which that test has",
    ),
    "version": ("test_front_door.py", "it is a name of the package's front"),
    "tools/image_texts": ("tools/test_make_images.py", "the words of what that draws"),
    "tools/bootstrap_python": ("tools/test_bootstrap.py", "the installer's second half"),
    "tools/make_corpus": ("models/test_corpus.py", "the text that it makes is the module's"),
}
# Test files without a module of their name, and what they are about.
ABOUT = {
    "runtime/lab/slurm": "a real Slurm: the guides' batch scripts, a lab in an allocation",
    "runtime/lab/ssh": "a real sshd: a node of a lab, and what the guide says of ssh",
    "runtime/world/busy_machine": "cells that hang while a class shares the machine",
    "course/*": "the exercises of the course, and its first chapter in a browser",
    "collectives/algorithms": "what every algorithm has to keep",
    "data_parallel/large_batch/lars_lamb": "two optimizers with one way of being tested",
    "grading/cheating/*": "the rows of the guide's table, each tried at its levels",
    "grading/classroom/parts/slurm": "the guide's job array, on a real Slurm",
    "grading/classroom/hostile/corpus": "classes with hand-ins that attack the grader, the machine and each other",
    "grading/fault_corpus": "the faults of tests/runtime/fault_corpus.py, handed in as answers",
    "grading/on_rank/stress_sends": "stress, on real ranks",
    "grading/report/schema": "the reports' schema, which is data",
    "notebook/kernel_ends": "the ways in which a kernel ends",
    "pipeline_parallel/torch_parity": "every order in torch's runner and in ours",
    "production/bug_lab/programs": "the lab's programs, and their fixed versions, on real ranks",
    "production/checkpoints/checkpointer_bad_input": "calls, disks and folders that are not as they should be",
    "runtime/bad_input": "code that does what no rank should do",
    "runtime/faults": "the corpus of faults, in runs and in cells",
    "runtime/kills": "kills at any moment",
    "tensor_parallel/torch_parity": "the course's blocks, model and loss beside torch's",
    "viz/pure": "viz needs neither pyplot nor torch.distributed",
    "class_names": "one name, one type",
    "conftest": "the suite itself",
    "environment": "what is installed",
    "stand_in/*": "the device of tests that is neither the CPU nor a GPU",
    "front_door": "`import dtlearn`",
    "*_guide": "the guides in docs/",
    "pipeline_parallel/runner/live_activations": "the memory of whole schedules",
    "kernel_sockets": "how tests start kernels",
    "layers": "the order of imports",
    "mirror": "this file",
    "notebook_devices": "chapters on a machine with GPUs",
    "pages": "what makes a file a page",
    "quick_start": "how all tests are collected",
    "size": "lines and files",
    "statements": "how tests of imports and sizes read a file",
    "warm_starts": "how tests with several workers start agents, judges and kernels",
}


def modules(root: Path) -> set[str]:
    """All modules of `dtlearn/` and `tools/`, as `runtime/link/cost` and `tools/bootstrap`."""
    package = {file.relative_to(root / "dtlearn") for file in (root / "dtlearn").rglob("*.py")}
    tools = {file.relative_to(root) for file in (root / "tools").glob("*.py")}
    return {path.with_suffix("").as_posix() for path in package | tools}


def subjects(root: Path) -> set[str]:
    """What the test files are named after; tests/viz/test_init.py after viz/__init__.py, if there is no viz/init.py."""
    found = set()
    for file in (root / "tests").rglob("test_*.py"):
        folder, name = file.relative_to(root / "tests").parent, file.stem.removeprefix("test_")
        is_dunder = (root / "dtlearn" / folder / f"__{name}__.py").is_file()
        found.add((folder / (f"__{name}__" if is_dunder else name)).as_posix())
    return found


def differences(root: Path, tested_by: dict[str, tuple[str, str]], about: dict[str, str]) -> list[str]:
    """What is not mirrored and stands in no table, and what stands in a table for nothing; a line each."""
    untested = {name for name in modules(root) - subjects(root) if not name.endswith(("__init__", "__main__"))}
    alone = subjects(root) - modules(root)
    found = [f"dtlearn/{name}.py has no test file" for name in untested if not matches(name, tested_by)]
    found += [f"tests/.../test_*.py for {name} has no module" for name in alone if not matches(name, about)]
    found += [
        f"TESTED_BY: {entry} is not needed" for entry in tested_by if not any(fnmatch(n, entry) for n in untested)
    ]
    found += [f"ABOUT: {entry} is not needed" for entry in about if not any(fnmatch(n, entry) for n in alone)]
    found += [f"TESTED_BY: {test} is gone" for test, _ in tested_by.values() if not (root / "tests" / test).is_file()]
    reasons = {name: why for name, (_, why) in tested_by.items()} | about
    found += [f"{name} has no reason" for name, why in reasons.items() if not why]
    return sorted(found)


def matches(name: str, table: Iterable[str]) -> bool:
    return any(fnmatch(name, entry) for entry in table)


def test_the_tests_mirror_the_package():
    assert len(modules(ROOT)) > 200 < len(subjects(ROOT))
    assert not (found := differences(ROOT, TESTED_BY, ABOUT)), "\n" + "\n".join(found)


@pytest.fixture
def small(tmp_path):
    """A package whose tests mirror it."""
    files = ["dtlearn/__init__.py", "dtlearn/viz/__init__.py", "dtlearn/viz/style.py", "tools/build.py"]
    files += ["tests/viz/test_style.py", "tests/viz/test_init.py", "tests/tools/test_build.py"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert differences(tmp_path, {}, {}) == []
    return tmp_path


def test_a_module_without_tests_and_tests_without_a_module_are_found(small):
    (small / "dtlearn/viz/units.py").touch()
    (small / "tests/viz/test_pure.py").touch()
    assert len(differences(small, {}, {})) == 2
    assert differences(small, {"viz/unit*": ("viz/test_style.py", "why")}, {"viz/pure": "all of it"}) == []


def test_an_entry_that_nothing_needs_is_found(small):
    (small / "dtlearn/viz/units.py").touch()
    tested_by = {"viz/units": ("viz/test_gone.py", "why"), "viz/table": ("viz/test_style.py", "why")}
    found = differences(small, tested_by, {"pure": "why"})
    assert found == [
        "ABOUT: pure is not needed",
        "TESTED_BY: viz/table is not needed",
        "TESTED_BY: viz/test_gone.py is gone",
    ]


def test_an_entry_without_a_reason_is_found(small):
    (small / "dtlearn/viz/units.py").touch()
    (small / "tests/viz/test_pure.py").touch()
    found = differences(small, {"viz/units": ("viz/test_style.py", "")}, {"viz/pure": ""})
    assert found == ["viz/pure has no reason", "viz/units has no reason"]
