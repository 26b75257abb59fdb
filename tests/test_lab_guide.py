"""docs/lab.md says what is: its files parse, its commands exist, its messages are the program's, its script runs."""

import re

import pytest

from dtlearn.cli.doctor import group
from dtlearn.cli.doctor.check import table
from dtlearn.notebook.magics import RanksMagics, parse_line
from dtlearn.runtime.lab.config import read_lab
from tests.guides import ROOT, blocks, commands, is_said, messages, options_of, parses, source_texts
from tests.slurm import run_batch_script

GUIDE = (ROOT / "docs" / "lab.md").read_text("utf-8")
LABS = blocks(GUIDE, "toml")
SCRIPT = next(block for block in blocks(GUIDE, "bash") if "#SBATCH" in block)


@pytest.mark.parametrize("text", LABS, ids=range(len(LABS)))
def test_each_lab_is_one(text, tmp_path):
    (tmp_path / "lab.toml").write_text(text)
    lab = read_lab(tmp_path / "lab.toml")
    assert len(lab.nodes) == 2 and lab.size >= 4


def test_the_labs_show_every_way_to_start_and_both_kinds_of_ranks(tmp_path):
    found = set()
    for text in LABS:
        (tmp_path / "lab.toml").write_text(text)
        found |= {(node.start, bool(node.gpus)) for node in read_lab(tmp_path / "lab.toml").nodes}
    assert {start for start, _ in found} == {"manual", "local", "ssh", "srun"}
    assert {gpus for _, gpus in found} == {True, False}


def test_each_command_exists():
    found = commands(GUIDE)
    assert {words[0] for words in found} >= {"doctor", "lab-token", "node", "lab"}
    assert not [words for words in found if not parses(words)]


def test_a_command_that_does_not_exist_is_found():
    page = "`dtlearn doctor --labs x`, `dtlearn lap`\n```\ndtlearn node --token-file t\ndtlearn doctor\n```\n"
    assert [parses(words) for words in commands(page)] == [False, True, False, False]


def test_each_magic_parses():
    lines = [line for block in blocks(GUIDE, "") for line in block.splitlines() if line.startswith("%%")]
    assert lines == ["%%launch -n 2 --nodes all"]
    assert parse_line(RanksMagics.launch, lines[0].partition(" ")[2]).nodes == "all"


def test_each_message_is_in_the_source():
    found = messages(GUIDE)
    assert len(found) >= 15
    assert not [quote for quote in found if not is_said(quote, source_texts())]


def test_a_message_that_nobody_says_is_found():
    assert is_said("host ... is gone: ...", ["host \0 is gone: \0. Look whether"])
    assert not is_said("host ... went away: ...", source_texts())
    with pytest.raises(AssertionError, match="too short"):
        is_said("host ...", source_texts())


def test_the_doctor_still_looks_as_in_the_guide():
    (shown,) = [block for block in blocks(GUIDE, "") if block.startswith("all nodes\n")]
    told = [{"seconds": 0.006667, "right": True, "torch": "2.13.0+cpu", "nccl": ""}] * 4
    checks = [group.check_builds(told), group.check_all_reduce(told, 1_000_000)]
    assert table(checks, 120) == shown.splitlines()[-2:]
    assert [line[8:26].strip() for line in shown.splitlines()[1:]] == [
        "reach each other",
        "ranks",
        "builds",
        "all-reduce",
    ]


def test_links_lead_somewhere():
    heads = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", GUIDE, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", GUIDE)) <= heads


def test_the_batch_script_runs(tmp_path):
    """As it stands, with two nodes of two processes, and fewer steps."""
    done = run_batch_script(
        SCRIPT.replace("train_digits'", "train_digits --steps 3'"),
        tmp_path,
        hosts="echo 127.0.0.1 && echo 127.0.0.2",
        srun='SLURM_NODEID=0 "$@" & first=$!\nSLURM_NODEID=1 "$@"\nsecond=$?\nwait $first && exit $second',
        env={"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "world_size=4 steps=3" in done.stdout


def test_the_options_of_the_node_command_are_the_commands():
    assert {"--join", "--name", "--token-file", "--interface", "--directory"} <= options_of("node")
