"""A real Slurm runs the guides' batch scripts, and starts the nodes of a lab."""

import json
import re
import signal
import time

import pytest

from dtlearn.cli import main
from dtlearn.runtime.errors import RankError
from dtlearn.runtime.lab.config import read_lab
from dtlearn.runtime.lab.head.agent import LabAgent
from dtlearn.runtime.lab.head.launch import launch_on_lab
from dtlearn.runtime.world.world import World
from tests.guides import ROOT, blocks, code_spans
from tests.real_slurm import NODES, skip_for, slurm, wait_until  # noqa: F401 - a fixture

from ..conftest import Shown, living

LAB, TRAIN = ((ROOT / "docs" / page).read_text("utf-8") for page in ("lab.md", "train.md"))
SCRIPTS = {
    page: next(b for b in blocks(text, "bash") if "#SBATCH" in b) for page, text in (("lab", LAB), ("train", TRAIN))
}
SALLOC = next(span for span in code_spans(LAB) if span.startswith("salloc "))
TOML = next(block for block in blocks(LAB, "toml") if '"srun"' in block)
LAUNCH = next(block for block in blocks(LAB, "") if block.startswith("%%launch"))
FEWER_GPUS = ("--gpus-per-node=4", "--gpus-per-node=2")  # than the guides' machines have

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def changed(text: str, *changes: tuple[str, str]) -> str:
    """A text of a guide, with each of these changes made once."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_what_is_missing_skips_a_test_and_fails_it_where_it_is_required(monkeypatch):
    monkeypatch.delenv("DTLEARN_REQUIRE_CLUSTER", raising=False)
    skip_for(None)
    with pytest.raises(pytest.skip.Exception, match="no slurmd"):
        skip_for("no slurmd")
    monkeypatch.setenv("DTLEARN_REQUIRE_CLUSTER", "1")
    skip_for(None)
    with pytest.raises(AssertionError, match="and no slurmd"):
        skip_for("no slurmd")


def test_the_batch_script_of_the_lab_guide_runs(slurm, tmp_path):  # noqa: F811
    """One torchrun on each node, as many processes as the node has GPUs."""
    script = changed(SCRIPTS["lab"], FEWER_GPUS, ("train_digits'", "train_digits --steps 3'"))
    code, said = slurm.batch(script, tmp_path)
    assert code == 0, said
    assert "world_size=4 steps=3" in said


def test_the_batch_script_of_the_training_guide_is_told_to_end_and_the_next_job_goes_on(slurm, tmp_path):  # noqa: F811
    """A task for each rank. SIGTERM, which `--signal` sends two minutes before the end, comes at once."""
    script = changed(
        SCRIPTS["train"],
        FEWER_GPUS,
        ("--ntasks-per-node=4", "--ntasks-per-node=1"),
        ("dtlearn.train ", "dtlearn.train --device cpu --epochs 1000 "),
        (" --log-dir runs/a", ""),  # TensorBoard takes seconds to load
    )

    def tell(job: str) -> None:
        wait_until(lambda: "epoch 1: " in slurm.written(tmp_path, job), lambda: slurm.written(tmp_path, job), 250)
        assert slurm.run("scancel", "--signal=TERM", job).returncode == 0

    code, said = slurm.batch(script, tmp_path, tell)
    assert "2 ranks over gloo on cpu" in said and said.count("digits:") == 1
    step = int(re.search(r"stopped after step (\d+) of 14000 \(SIGTERM\); the same command goes on", said)[1])
    assert code == 128 + signal.SIGTERM and (tmp_path / "runs" / "a" / f"step-{step:08}.pt").exists()
    code, said = slurm.batch(changed(script, ("--epochs 1000", f"--max-steps {step + 2}")), tmp_path)
    assert code == 0 and f"going on from runs/a/step-{step:08}.pt" in said, said
    assert (tmp_path / "runs" / "a" / f"step-{step + 2:08}.pt").exists()


def test_a_script_that_fails_fails_its_job(slurm, tmp_path):  # noqa: F811
    code, said = slurm.batch("#!/bin/sh\necho here\nexit 7\n", tmp_path)
    assert (code, "here" in said) == (7, True)


@pytest.fixture(scope="module")
def allocated(slurm, tmp_path_factory, temp_root, on_the_cpu):  # noqa: F811
    """The guide's lab.toml, and this process as if it ran in the shell of the guide's allocation."""
    path = tmp_path_factory.mktemp("lab") / "lab.toml"
    ours = (
        ("10.1.0.17", "127.0.0.1"),
        ('"n17"', '"n1"'),
        ('"n18"', '"n2"'),
        ("[head]", '[head]\nport = "47600-47990"'),
    )
    path.write_text(changed(TOML.replace("gpus = 4", "slots = 2"), *ours))
    with slurm.allocation(*changed(SALLOC, FEWER_GPUS).split()) as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setenv("SRUN_CPUS_PER_TASK", "16")
        patch.setenv("PYTHONPATH", str(ROOT))  # nodes import the same dtlearn as this process
        yield path


def test_the_doctor_finds_a_lab_in_an_allocation_well(allocated, capsys):
    code = main(["doctor", "--lab", str(allocated), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, report
    titles = [section["title"] for section in report["sections"]]
    assert titles == ["head", "n1 (ranks 0 and 1)", "n2 (ranks 2 and 3)", "all nodes"]
    found = {check["name"]: check["found"] for check in report["sections"][2]["checks"]}
    assert found["host name"].startswith("n2")
    assert "1 MB over 4 ranks" in report["sections"][-1]["checks"][-1]["found"]


def steps(slurm) -> dict[str, str]:  # noqa: F811
    """The steps that run on one node, by that node."""
    shown = slurm.run("squeue", "--steps", "--noheader", "--format=%i %N").stdout
    return {node: step for step, node in re.findall(r"^(\d+\.\d+) (\w+)$", shown, re.M)}


@pytest.fixture(autouse=True)
def nothing_is_left(temp_root):
    """Takes the place of the conftest's, which does not know of nodes: `world` looks."""


@pytest.fixture(scope="module")
def world(slurm, allocated):  # noqa: F811
    lab, before = read_lab(allocated), living()
    made = World(lab.size, agent=LabAgent(lab))
    yield made
    made.stop()
    wait_until(lambda: not living() - before, lambda: f"still alive: {living() - before}")
    wait_until(lambda: not steps(slurm), lambda: f"still there: {steps(slurm)}")


def test_cells_run_on_the_nodes(world):
    shown = Shown()
    world.execute(
        "import os, socket\nt = torch.ones(2) * (rank + 1)\ndist.all_reduce(t)\n"
        "print(socket.gethostname(), os.environ['SLURM_GPUS_ON_NODE'], os.environ['SLURM_CPUS_PER_TASK'], t.tolist())",
        sink=shown,
        timeout=120,
    )
    assert [shown.text(rank) for rank in range(4)] == [f"{NODES[rank // 2]} 2 16 [10.0, 10.0]\n" for rank in range(4)]
    assert [row["host"] for row in world.status()] == ["n1", "n1", "n2", "n2"]


def test_a_script_runs_on_all_nodes(world):
    """The guide's cell, with fewer steps."""
    first, _, text = changed(LAUNCH, ('"100"', '"3"')).partition("\n")
    assert first == "%%launch -n 2 --nodes all"
    shown = Shown()
    launch_on_lab(world.agent, text, 2, args=[], timeout=200, sink=shown)
    assert "world_size=4 steps=3" in shown.text(0)


def test_a_node_that_is_cancelled_in_mid_cell_is_named_and_restart_brings_it_back(slurm, world):  # noqa: F811
    """Each node is a step of the job."""
    of_n2 = steps(slurm)["n2"]
    shown, begun = Shown(), []

    def cancel(rank: int, text: str) -> None:
        if not begun:
            begun.append(time.monotonic())
            slurm.run("scancel", of_n2)

    shown.on_text = cancel
    with pytest.raises(RankError) as error:
        world.execute(
            "print('go')\nif rank:\n    dist.barrier()\nimport time\ntime.sleep(100)", sink=shown, timeout=120
        )
    assert time.monotonic() - begun[0] < 30
    assert str(error.value).startswith("ranks 2 and 3 ended: host n2 is gone: ")
    assert [row["state"] for row in world.status()] == ["idle", "idle", "dead", "dead"]
    world.restart()
    shown = Shown()
    world.execute("dist.barrier()\nprint(rank)", sink=shown, timeout=120)
    assert shown.text(3) == "3\n"
