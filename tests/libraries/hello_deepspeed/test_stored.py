"""The stored runs of HelloDeepSpeed: what they show, and that a run still gives them."""

from dataclasses import replace

import pytest

from dtlearn.libraries.hello_deepspeed.loop import train_each
from dtlearn.libraries.hello_deepspeed.stored import RUNS, load_stored_hello, store
from dtlearn.runtime.run import run_ranks
from tests.libraries.hello_deepspeed.runs import small

STORED = load_stored_hello()
STEPS = 3  # of the first losses, before differences of processors grow
DIGITS = 1e-4


def stages(precision):
    return [name for name in RUNS if name.startswith("zero") and name.endswith(precision)]


def test_every_run_is_stored_with_its_versions_and_a_date():
    assert list(STORED.runs) == list(RUNS) and STORED.date >= "2026-11-27"
    assert set(STORED.versions) == {"torch", "deepspeed"}
    for name, run in STORED.runs.items():
        assert run.engine == RUNS[name].engine and len(run.losses) == RUNS[name].steps
        assert run.losses[-1] < run.losses[0]


def test_in_fp32_every_stage_and_offload_is_the_twin():
    assert len(stages("fp32")) == 6
    assert max(STORED.from_the_twin(name, step) for name in stages("fp32") for step in range(20)) < 1e-4


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_16_bits_stage_0_is_apart_after_the_first_update(precision):
    first, *others = stages(precision)
    assert first == f"zero0_{precision}" and len(others) == 3
    assert STORED.from_the_twin(first, 1) > 5 * max(STORED.from_the_twin(name, 1) for name in others)


def test_the_plain_run_is_still_what_is_stored():
    options = [replace(RUNS[f"plain_{precision}"], steps=STEPS) for precision in ("fp32", "bf16")]
    fp32, bf16 = run_ranks(train_each, 2, options, device="cpu").values[0]
    assert fp32.losses == pytest.approx(STORED.runs["plain_fp32"].losses[:STEPS], abs=DIGITS)
    assert bf16.losses == pytest.approx(STORED.runs["plain_bf16"].losses[:STEPS], abs=2e-2)


@pytest.mark.libraries
@pytest.mark.timeout(300)
def test_deepspeeds_runs_are_still_what_is_stored():
    names = [*stages("fp32"), "zero0_bf16"]
    options = [replace(RUNS[name], steps=STEPS) for name in names]
    for name, run in zip(names, run_ranks(train_each, 2, options, device="cpu", timeout=240).values[0], strict=True):
        digits = DIGITS if name.endswith("fp32") else 2e-2
        assert run.losses == pytest.approx(STORED.runs[name].losses[:STEPS], abs=digits), name


def test_a_file_that_is_none_and_a_run_that_is_none_are_said(tmp_path):
    for content in (b"{}", b'{"runs": []}', b'{"runs": {"a": 1}}', b"\xff\xfe"):
        (tmp_path / "stored.json").write_bytes(content)
        with pytest.raises(ValueError, match="holds no stored runs of HelloDeepSpeed"):
            load_stored_hello(tmp_path / "stored.json")
    for wrong in (("x", 0), ("plain_fp32", 99), ("plain_fp32", -1)):
        with pytest.raises(ValueError, match=r"no run is called 'x'|step must be 0 to 19, got"):
            STORED.from_the_twin(*wrong)
    with pytest.raises(ValueError, match="no run is called zero9"):
        store(["zero9"], tmp_path / "stored.json")


def test_what_is_stored_is_read_again(tmp_path, monkeypatch):
    file = tmp_path / "stored.json"
    monkeypatch.setitem(RUNS, "plain_fp32", small(steps=2))
    store(["plain_fp32"], file)
    found = load_stored_hello(file)
    assert list(found.runs) == ["plain_fp32"] and len(found.runs["plain_fp32"].losses) == 2
    assert found.from_the_twin("plain_fp32", 1) == 0.0
