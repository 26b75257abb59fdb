"""The command prints what a bench measured, as a table or as JSON."""

import json
from dataclasses import dataclass

import pytest

from dtlearn import cli
from dtlearn.bench.bench import Bench
from dtlearn.bench.benches import BENCHES


@dataclass(frozen=True)
class Result:
    ranks: int
    times: int
    ok: bool


def fake(ok):
    return Bench(
        "Fakes.", "dtlearn bench", "rounds", 7, lambda r, t: Result(r, t, ok), lambda r: f"table {r.times}", vars
    )


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, cli.WRONG)])
def test_table_and_json(monkeypatch, capsys, ok, code):
    monkeypatch.setitem(BENCHES, "fake", fake(ok))
    assert cli.main(["bench", "fake"]) == code
    assert capsys.readouterr().out == "table 7\n"
    assert cli.main(["bench", "fake", "--json", "--ranks", "3", "--rounds", "2"]) == code
    assert json.loads(capsys.readouterr().out) == {"bench": "fake", "ranks": 3, "times": 2, "ok": ok}
