"""The stored results: what they show, and that a real run still gives them."""

from dataclasses import replace

import pytest

from dtlearn.libraries.comparing.requests import MAIN, REQUESTS
from dtlearn.libraries.comparing.run_library import run_here, title_of
from dtlearn.libraries.comparing.stored import differences, load_stored_results, rounded, store
from dtlearn.libraries.engines.registry import find_engine

STORED = load_stored_results()
COURSE = [name for name, (engine, _) in REQUESTS.items() if not find_engine(engine).module]
OTHERS = [name for name in REQUESTS if name not in COURSE]
ROUGH = {"bf16": 0.05, "fp16": 0.005}


def test_every_run_is_stored_with_its_versions_and_a_date():
    assert list(STORED.results) == list(REQUESTS) and set(MAIN) <= set(REQUESTS)
    assert STORED.date >= "2026-11-27"
    for name, result in STORED.results.items():
        assert result.title == title_of(*REQUESTS[name])
        assert result.versions["torch"]
        assert len(result.ranks) == len(result.peak_bytes) == len(result.state_bytes) == REQUESTS[name][1].world_size


@pytest.mark.parametrize("name", list(REQUESTS))
def test_all_libraries_have_the_losses_of_one_process(name):
    """Exactly with fp32; with 16 bits nearly. Clipping at 1.0 changes the third loss: no gradient is smaller."""
    run, losses = REQUESTS[name][1], STORED.results[name].losses
    whole = STORED.results["reference"].losses
    apart = max(abs(a - b) for a, b in zip(losses, whole, strict=True))
    if run.clipping:
        assert 1e-4 < apart < 0.01
    else:
        assert apart < ROUGH.get(run.precision, 2e-6)


def check(name):
    found = run_here(*REQUESTS[name])
    assert differences(STORED.results[name], found) == []


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "pipeline"])
def test_a_run_is_still_what_is_stored(name):
    check(name)


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_a_real_run_of_a_library_is_still_what_is_stored(name):
    check(name)


def test_other_losses_and_other_calls_are_found():
    result = STORED.results["zero2"]
    assert differences(result, result) == []
    assert "losses" in differences(result, replace(result, losses=(5.0, 4.0, 3.0)))[0]
    row = replace(result.calls[0], sizes=(4,))
    gone, new = differences(result, replace(result, ranks=((row, *result.calls[1:]), result.ranks[1])))
    assert gone.startswith("rank 0: gone") and new.startswith("rank 0: new")
    assert rounded((1.234567,)) == [1.23457]


def test_a_file_that_is_none_is_said(tmp_path):
    for content in (b"{}", b"[]", b'{"results": []}', b'{"results": {"ddp": 1}}', b"\xff\xfe", b"no json"):
        (tmp_path / "results.json").write_bytes(content)
        with pytest.raises(ValueError, match="holds no stored results"):
            load_stored_results(tmp_path / "results.json")
    with pytest.raises(ValueError, match="no stored run is called zero9"):
        store(["zero9"], tmp_path / "results.json")


def test_one_run_is_stored_beside_the_others(tmp_path, capsys):
    file = tmp_path / "results.json"
    store(["reference"], file)
    assert list(load_stored_results(file).results) == ["reference"]
    assert "one process" in capsys.readouterr().out
