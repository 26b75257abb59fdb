"""The arithmetic of model states, and DeepSpeed's estimators beside it."""

import pytest

from dtlearn.libraries.around.estimates import Estimate, compare_estimates, paper_bytes

P = 7_000_000_000


@pytest.mark.parametrize(("stage", "per_parameter"), [(0, 16), (1, 2 + 2 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_the_papers_bytes(stage, per_parameter):
    """Figure 1 of ZeRO (1910.02054) in small: 16, then 4 + 12/N, 2 + 14/N, 16/N bytes a parameter."""
    assert paper_bytes(P, 8, stage) == P * per_parameter


@pytest.mark.parametrize("sizes", [(P, 0, 1), (0, 8, 1), (P, 2.0, 1), (P, 8, 4)])
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(ValueError, match="must be"):
        paper_bytes(*sizes)


def test_estimates_of_no_ranks_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="ranks must be 1 or more, got 0"):
        compare_estimates(P, 1000, 0)


def test_what_is_printed_as_gb_is_gib():
    estimate = Estimate(3, 0.0, 2.0**30)
    assert (estimate.printed, round(estimate.gigabytes, 3)) == (1.0, 1.074)


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ranks", [1, 8])
def test_deepspeed_counts_a_gradient_in_fp32_too(ranks):
    two, three = compare_estimates(P, 1000, ranks)
    assert two.deepspeed_bytes == 2 * P + 18 * P // ranks
    assert three.deepspeed_bytes == 18 * P // ranks + 4 * 1000
    assert two.deepspeed_bytes > two.paper_bytes and three.deepspeed_bytes > three.paper_bytes
