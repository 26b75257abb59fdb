from dataclasses import fields
from itertools import combinations

from matplotlib.colors import to_rgb

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
        for one, other in combinations(looks.values(), 2):
            apart = abs(lightness(one.color) - lightness(other.color))
            assert one.hatch != other.hatch or apart > 0.08, f"{one} and {other} are one in grey"
    assert TIME["tensor parallel"] == AXES["tp"] and TIME["data parallel"] == AXES["dp"]
    assert look_patch("tp", AXES["tp"]).get_hatch() == AXES["tp"].hatch


def lightness(color):
    """The lightness of a color, from 0 to 1, as on a page printed in grey."""
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue
