"""`dtlearn plan`: layouts out, as a table or as JSON; a score; mistakes in one message."""

import json

import pytest

from dtlearn import cli
from dtlearn.planner.score import BUILT_IN

BLOOM = ["plan", "bloom", "384xA100-80GB", "2048"]


def test_a_plan_is_a_table(capsys):
    assert cli.main([*BLOOM, "--network", "12.5", "--top", "3", "--tokens", "366e9"]) == 0
    said = capsys.readouterr().out
    for part in ("BLOOM 176B", "384 x A100-80GB", "second: ", "days"):
        assert part in said


def test_a_plan_is_json(capsys):
    assert cli.main([*BLOOM, "--tp", "4", "--pp", "12", "--recompute", "full", "--json"]) == 0
    (layout,) = json.loads(capsys.readouterr().out)["layouts"]
    assert (layout["tp"], layout["pp"], layout["dp"], layout["recompute"]) == (4, 12, 8, "full")


def test_the_score_ends_in_its_sum(capsys):
    assert cli.main(["plan", "--score", str(BUILT_IN)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("inside tolerance: ")
    assert cli.main(["plan", "--score", str(BUILT_IN), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["of"] == 131


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["plan"], "expected MODEL CLUSTER BATCH"),
        (["plan", "blom", "8xA100", "8"], "unknown model"),
        (["plan", "bloom", "8xH101", "8"], "unknown GPU"),
        (["plan", "bloom", "A100", "8"], "NUMBERxGPU"),
        (["plan", "bloom", "8xA100", "none"], "whole number"),
        (["plan", "llama-3-405b", "8xH100", "64"], "What would help"),
        ([*BLOOM, "--tp", "5"], "112 heads do not divide"),
        ([*BLOOM, "--network", "0"], "above 0"),
        ([*BLOOM, "--network", "nan"], "finite bandwidth above 0, got nan"),
        ([*BLOOM, "--tokens", "-5"], "tokens must be a number of 0 or more; got -5.0"),
        ([*BLOOM, "--tokens", "inf"], "tokens of the whole run must be finite"),
        ([*BLOOM, "--tp", "4", "--pp", "12", "--dp", "7"], "multiply to 336, which does not divide 384 ranks."),
        ([*BLOOM, "--length", "3", "--tp", "4"], "3 tokens do not divide by tp 4"),
        (["plan", "1e400", "8xH100", "8"], "expected 1e6 to 1e15"),
        (["plan", "1e30", "8xH100", "8"], "expected 1e6 to 1e15"),
        (["plan", "bloom", "64xH100/3", "64"], "64 chips do not fill nodes of 3"),
        (["plan", "bloom", "8xV1000", "8"], "unknown GPU 'V1000'"),
        (["plan", "--score", "nowhere.json"], "cannot read nowhere.json"),
    ],
)
def test_a_mistake_is_told_in_one_message(capsys, command, says):
    assert cli.main(command) == cli.USAGE
    said = capsys.readouterr()
    assert says in said.err and "Traceback" not in said.err
