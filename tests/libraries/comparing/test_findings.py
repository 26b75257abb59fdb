"""Where libraries send what nobody expects: every figure is that of a stored run."""

from dataclasses import replace

import pytest

from dtlearn.libraries.comparing.findings import FINDINGS, held, volume
from dtlearn.libraries.comparing.requests import BASE
from dtlearn.libraries.comparing.stored import load_stored_results

RESULTS = load_stored_results().results
P = BASE.config.num_parameters


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.run)
def test_the_run_sends_what_the_finding_says(finding):
    assert held(finding, RESULTS, P), volume(RESULTS[finding.run], P)
    assert not held(replace(finding, found=finding.found + 0.1), RESULTS, P)


@pytest.mark.parametrize("finding", [f for f in FINDINGS if f.then], ids=lambda finding: finding.then)
def test_the_key_gives_what_was_expected(finding):
    found = volume(RESULTS[finding.then], P)
    if finding.run == "zero3":  # one of two reasons
        assert found == pytest.approx(2, abs=2e-3)
        assert RESULTS[finding.then].calls[0].phase == "forward"
    elif finding.run == "zero2_accumulation":  # the all-reduce of the first finding, once
        assert found == pytest.approx(3, abs=2e-3)
    else:
        assert found == pytest.approx(finding.expected, abs=2e-3)


def test_one_rank_sends_nothing_and_no_model_is_refused():
    assert volume(RESULTS["reference"], P) == 0
    with pytest.raises(ValueError, match="num_parameters must be 1 or more, got 0"):
        volume(RESULTS["ddp"], 0)


def test_every_bucket_is_all_reduced_whoever_owns_it():
    """Buckets of 20,000 elements, and a rank owns 60,288: most of them are one owner's, and still it is 3."""
    result = RESULTS["zero2_small_buckets"]
    assert volume(result, P) == pytest.approx(3, abs=2e-3)
    assert not [row.op for row in result.calls if row.op in ("reduce", "reduce_scatter_tensor")]


def test_ddp_is_two_units_and_fsdp2_kept_whole_too():
    assert volume(RESULTS["ddp"], P) == 2 == volume(RESULTS["fsdp2_kept"], P)
