from dataclasses import fields

from dtlearn.hybrid_parallel.layout import FROM_FAST_TO_SLOW
from dtlearn.planner import Axes, TrainingRun, find_model, parse_cluster, planned_memory, planned_step
from dtlearn.viz.hybrid_parallel.looks import AXES, MEMORY, TIME, look_patch


def test_every_axis_and_every_row_of_the_planner_has_a_look():
    run = TrainingRun(find_model("mpt-7b"), parse_cluster("8xA100"), Axes(2, 2, 2), batch=8)
    assert set(planned_step(run).rows) == set(TIME)
    assert set(planned_memory(run).rows) == set(MEMORY)
    assert set(FROM_FAST_TO_SLOW) == set(AXES) <= {field.name for field in fields(Axes)}


def test_no_two_rows_of_a_bar_look_the_same_and_an_axis_looks_like_its_time():
    for looks in (AXES, MEMORY, TIME):
        assert len(set(looks.values())) == len({look.color for look in looks.values()}) == len(looks)
    assert TIME["tensor parallel"] == AXES["tp"] and TIME["data parallel"] == AXES["dp"]
    assert look_patch("tp", AXES["tp"]).get_hatch() == AXES["tp"].hatch
