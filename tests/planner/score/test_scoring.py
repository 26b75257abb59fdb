"""The score of the file's own entries, and files that the planner has not seen."""

import json
import random
from dataclasses import replace

import pytest

from dtlearn.planner.score import PublishedNumber, counted, predict, read_entries, score, score_table, score_values
from dtlearn.planner.score.analytic import FORMULAS


@pytest.fixture(scope="module")
def judged():
    return score(read_entries())


def test_nine_tenths_are_inside(judged):
    inside, number = counted(judged)
    assert number == 131
    assert inside >= 0.9 * number


def test_every_analytic_entry_is_inside(judged):
    outside = [row.entry.id for row in judged if row.entry.kind == "analytic" and not row.inside]
    assert not outside


def test_every_entry_has_a_prediction_or_a_reason(judged):
    assert all((row.predicted is None) == bool(row.reason) for row in judged)
    assert all(row.predicted is not None for row in judged if row.entry.kind != "formula")


def test_the_last_line_is_the_score(judged):
    inside, number = counted(judged)
    text = score_table(judged)
    assert text.splitlines()[-1] == f"inside tolerance: {inside} of {number}"
    for part in ("megascale: ", "by kind", "  analytic", "cannot predict: 0", "a formula, which is documentation"):
        assert part in text
    values = score_values(judged)
    assert (values["inside"], values["of"], len(values["entries"])) == (inside, number, len(judged))


def test_the_expected_number_is_not_looked_at():
    """From inputs alone: another expectation, the same prediction."""
    for entry in read_entries()[::5]:
        assert predict(replace(entry, expected=-1.0)).predicted == predict(entry).predicted


def test_a_wrong_formula_is_seen(monkeypatch, judged):
    monkeypatch.setitem(FORMULAS, "comm.allreduce_bytes_per_rank", lambda reader: (reader.need("ranks") - 1) / 4)
    assert counted(score(read_entries()))[0] == counted(judged)[0] - 1


def test_an_unknown_target_is_named():
    row = predict(PublishedNumber("x", "quantum.entanglement", kind="measured", expected=1.0))
    assert row.predicted is None and not row.inside
    assert row.reason == "unknown target 'quantum.entanglement'"
    assert predict(PublishedNumber("x", "")).reason == "it names no target"
    assert "inside tolerance: 0 of 1" in score_table([row])


def test_another_model_and_another_gpu_are_predicted():
    inputs = {"model": "Llama 2 13B", "gpus": 32, "tp": 2, "global_batch": 128, "device": "H200"}
    row = predict(
        PublishedNumber("unseen", "throughput.per_gpu", group="new", kind="measured", expected=450, inputs=inputs)
    )
    assert 250 < row.predicted < 800
    assert any(text.startswith("micro-batch") for text in row.assumed)


def test_bytes_come_in_the_unit_that_is_printed():
    of = PublishedNumber("x", "memory.model_states_per_device", unit="GB", inputs={"params": 1e9, "zero_stage": 0})
    assert predict(of).predicted == 16
    assert predict(replace(of, unit="GiB")).predicted == pytest.approx(16e9 / 2**30)
    assert predict(replace(of, unit="MiB")).predicted == pytest.approx(16e9 / 2**20)


def test_nothing_in_a_file_stops_the_score():
    """Inputs left out, replaced by nonsense, targets exchanged: each entry gets a number or a reason."""
    entries, dice = read_entries(), random.Random(0)
    nonsense = [0, -1, None, "x", [], {}, "12", 3.5, float("nan"), 1e30, True]
    for _ in range(400):
        entry = dice.choice(entries)
        inputs = {name: value for name, value in entry.inputs.items() if dice.random() > 0.15}
        for name in inputs:
            if dice.random() < 0.1:
                inputs[name] = dice.choice(nonsense)
        target = dice.choice([entry.target, dice.choice(entries).target])
        row = predict(replace(entry, inputs=inputs, target=target))
        assert (row.predicted is None) == bool(row.reason)


def test_targets_have_other_names_too():
    inputs = {"params": 7e9, "gpus": 8, "global_batch": 64, "device": "A100"}
    seconds = predict(PublishedNumber("x", "throughput.step_time", inputs=inputs)).predicted
    assert seconds == predict(PublishedNumber("x", "throughput.iteration_time", inputs=inputs)).predicted
    per_second = predict(PublishedNumber("x", "throughput.samples_per_s", inputs=inputs)).predicted
    assert per_second == pytest.approx(64 / seconds)


def test_sizes_that_no_model_has_are_answered_at_once_and_written_as_json():
    sizes = {"hidden": 10**30, "layers": 96, "gpus": 64, "device": "A100"}
    deep = {"hidden": 12288, "layers": 10**30, "gpus": 64, "device": "A100", "pp": 8}
    rows = score([PublishedNumber("x", "throughput.iteration_time", inputs=inputs) for inputs in (sizes, deep)])
    assert [row.predicted for row in rows] == [None, None]
    assert all("must be 1,000,000,000,000 at most; got a number of about 3" in row.reason for row in rows)
    json.dumps(score_values(rows), allow_nan=False)
