import pytest

from dtlearn.viz.zero.traffic_by_stage import sent_by_operation, traffic_by_stage
from tests.viz.records import event, record

SENT = {"stage 0": {"all_reduce": 4e6}, "stage 3": {"all_gather": 4e6, "reduce_scatter": 2e6}}
FORMULA = {"stage 0": 4e6, "stage 3": 5e6}


def test_bytes_of_a_ring_for_each_operation():
    run = record(
        *(
            [
                event(rank, 0, "all_reduce", 0, 1, nbytes=400),
                event(rank, 1, "reduce_scatter_tensor", 1, 2, nbytes=400),
                event(rank, 2, "all_gather_into_tensor", 2, 3, nbytes=100),
                event(rank, 3, "broadcast", 3, 4, nbytes=400, peer=0),
                event(rank, 4, "barrier", 4, 5, nbytes=0),
            ]
            for rank in range(4)
        )
    )
    assert sent_by_operation(run, 2) == {"all_reduce": 600, "reduce_scatter": 300, "all_gather": 300, "broadcast": 300}


def test_a_group_has_its_own_number_of_ranks():
    run = record(*([event(rank, 0, "all_reduce", 0, 1, nbytes=400, group="0,1")] for rank in range(2)), [], [])
    assert sent_by_operation(run) == {"all_reduce": 400}


def test_an_operation_without_a_rule_is_refused():
    with pytest.raises(ValueError, match="send: only all_reduce"):
        sent_by_operation(record([event(0, 0, "send", 0, 1, peer=1)], []))


def test_bars_are_stacked_and_the_formula_is_a_mark():
    fig = traffic_by_stage(SENT, FORMULA, ("Ψ(N-1)/N", 2e6), "t", "l")
    ax = fig.axes[0]
    assert [text.get_text() for text in ax.texts][:2] == ["4.00 MB = 2.00 Ψ(N-1)/N", "6.00 MB = 3.00 Ψ(N-1)/N"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[4, 4], [5, 5]]
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["all_gather", "all_reduce", "reduce_scatter", "formula"]


def test_a_stage_without_formula_is_refused():
    with pytest.raises(ValueError, match="a formula are needed for each stage"):
        traffic_by_stage(SENT, {"stage 0": 1})
    with pytest.raises(ValueError, match="bytes"):
        traffic_by_stage({}, {})
