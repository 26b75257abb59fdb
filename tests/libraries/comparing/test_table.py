"""Rows for a reader."""

import pytest

from dtlearn.libraries.comparing.requests import MAIN
from dtlearn.libraries.comparing.stored import load_stored_results
from dtlearn.libraries.comparing.table import call_rows, comparison_rows, lines_of, sent_by_kind

RESULTS = load_stored_results().results


def test_a_row_for_each_library_with_equal_losses():
    rows = comparison_rows({name: RESULTS[name] for name in MAIN})
    assert [row["run"] for row in rows] == list(MAIN)
    assert {row["last loss"] for row in rows} == {4.56189}
    ddp = next(row for row in rows if row["library"] == "torch DDP")
    assert (ddp["calls"], ddp["payload, kB"], ddp["sent in rings, kB"]) == (1, 482.3, 482.3)


@pytest.mark.parametrize("rank", [2, -1, 9])
def test_a_rank_that_the_run_has_not_is_refused(rank):
    with pytest.raises(ValueError, match=f"rank must be 0 to 1, got {rank}"):
        call_rows(RESULTS["ddp"], rank)


def test_a_row_for_each_kind_of_call():
    assert call_rows(RESULTS["ddp"]) == [
        {"phase": "backward", "call": "all_reduce", "ranks": 2, "dtype": "float32", "calls": 1, "kB": 482.3}
    ]


def documented(x):
    """Double it.

    Twice.
    """

    return 2 * x


def test_lines_to_write():
    assert lines_of(documented) == 2


def test_bytes_by_kind_of_call_are_all_that_is_sent_but_norms():
    assert sent_by_kind(RESULTS["ddp"]) == {"all-reduce": RESULTS["ddp"].wire_bytes}
    kinds = sent_by_kind(RESULTS["zero2"])
    assert list(kinds) == ["all-reduce", "all-gather"]
    assert kinds["all-reduce"] == pytest.approx(2 * kinds["all-gather"], rel=1e-4)  # but for padding
    assert 0 <= RESULTS["zero2"].wire_bytes - sum(kinds.values()) < 1000
    assert comparison_rows({"zero2": RESULTS["zero2"]})[0]["by kind, kB"] == "all-reduce 482, all-gather 241"
