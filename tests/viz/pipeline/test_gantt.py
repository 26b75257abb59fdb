from dtlearn.viz.pipeline.gantt import draw_gantt
from tests.viz.pipeline.runs import recorded


def test_the_shortest_step_of_a_record_is_drawn_in_ms():
    fig = draw_gantt(recorded(30, 20), "t", "emulated stage times")
    (ax,) = fig.axes
    assert ax.get_title(loc="left").startswith("180 ms; bubble: idle / useful = 50.0 %")
    assert "emulated stage times; run: gloo on CPU" in [text.get_text() for text in fig.texts]
    assert ax.get_xlabel() == "time since the step began (ms)"


def test_several_runs_have_names_and_one_axis():
    fig = draw_gantt({"slow": recorded(30), "fast": recorded(20)})
    assert [ax.get_title(loc="left").partition(":")[0] for ax in fig.axes] == ["slow", "fast"]
    assert len({ax.get_xlim() for ax in fig.axes}) == 1


def test_a_certain_step_can_be_drawn():
    assert draw_gantt(recorded(30, 20), step=0).axes[0].get_title(loc="left").startswith("270 ms")
