"""The errors: what they can be caught as, and how a notebook shows them."""

import pytest

from dtlearn.runtime import errors
from dtlearn.runtime.errors import RankError, RanksInterrupted, RanksTimeout
from dtlearn.runtime.faults.failure import Failure


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.NotSendable, ValueError),
        (errors.RankError, RuntimeError),
        (errors.RanksTimeout, TimeoutError),
        (errors.LaunchError, errors.DtlearnError),
    ],
)
def test_an_error_can_be_caught_as_what_it_is(kind, also):
    assert issubclass(kind, errors.DtlearnError)
    assert issubclass(kind, also)


def test_an_interrupt_is_not_swallowed_by_handlers_of_errors():
    assert issubclass(RanksInterrupted, KeyboardInterrupt)
    assert not issubclass(RanksInterrupted, Exception)


@pytest.mark.parametrize("kind", [RankError, RanksTimeout, RanksInterrupted])
def test_a_notebook_shows_the_message_only(kind):
    assert kind("one\ntwo")._render_traceback_() == ["one", "two"]


def test_the_first_failure_gives_the_rank():
    failures = (Failure(2, "raised", "ValueError", "bad"), Failure(0, "raised", "RuntimeError", "lost"))
    error = RankError("text", failures, {2: "said"})
    assert error.rank == 2
    assert error.output == {2: "said"}
    assert RankError("text").rank is None
