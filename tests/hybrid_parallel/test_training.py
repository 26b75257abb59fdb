"""One call that trains: equal losses under layouts of 1, 2, 4 and 8 ranks, on the text that is shipped."""

import pytest

from dtlearn.expert_parallel import ExpertGPTConfig
from dtlearn.hybrid_parallel import recorded_bytes, train, whole_parameters
from dtlearn.models import GPTConfig, max_difference
from dtlearn.runtime.errors import RankError

TINY = {"config": GPTConfig(context_length=16, num_layers=2, num_heads=2, hidden_size=16), "device": "cpu", "steps": 2}
TOLERANCE = 2e-6  # float32: measured 5e-7


@pytest.fixture(scope="module")
def alone():
    return train(**TINY)


@pytest.mark.parametrize(
    "options",
    [
        {"dp": 2},
        {"tp": 2, "pp": 2, "num_microbatches": 2},
        {"cp": 2, "zero": 1},
        {"tp": 2, "pp": 2, "dp": 2, "zero": 1, "num_microbatches": 2, "order": ("dp", "tp", "pp", "cp", "ep")},
    ],
    ids=str,
)
def test_every_layout_has_the_losses_of_one_rank(alone, options):
    run = train(**TINY, **options)
    assert run.losses == pytest.approx(alone.losses, abs=TOLERANCE) and run.record is None
    assert run.losses[1] < run.losses[0]
    assert max_difference(whole_parameters(run.states), whole_parameters(alone.states)).value < 1e-4  # a tenth of lr


def test_experts_too():
    """One micro-batch of all rows, so that the auxiliary loss is the same."""
    of_mixtures = TINY | {"config": ExpertGPTConfig(context_length=16, num_layers=2, num_heads=2, hidden_size=16)}
    alone, divided = train(**of_mixtures), train(**of_mixtures, ep=2, zero=1)
    assert divided.losses == pytest.approx(alone.losses, abs=TOLERANCE)
    assert max_difference(whole_parameters(divided.states), whole_parameters(alone.states)).value < 1e-4


def test_a_run_is_resumed_on_another_mesh(alone):
    first = train(**TINY | {"steps": 1}, dp=2, zero=1)
    second = train(**TINY | {"steps": 1}, tp=2, resume=first.states, first_batch=1)
    assert [*first.losses, *second.losses] == pytest.approx(alone.losses, abs=TOLERANCE)


def test_the_record_is_kept():
    run = train(**TINY | {"steps": 1}, tp=2, record=True)
    sent = recorded_bytes(run.record.events, run.layout, 0)
    assert sent["tp"] > 0 == sent["dp"] == sent["pp"]


def test_what_does_not_fit_is_an_error_of_the_ranks():
    with pytest.raises(RankError, match="tp=4 does not divide 2 heads"):
        train(**TINY, tp=4)
