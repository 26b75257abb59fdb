import itertools

import pytest

from dtlearn.viz.pipeline.bubble_memory import _LETTER, bubble_memory

COMPUTED = {"GPipe": (8, 0.273), "1F1B": (4, 0.273), "ZB-H1": (4, 0.111), "ZBV": (4, 0.1)}


def test_every_schedule_is_a_point_with_its_name():
    fig = bubble_memory(COMPUTED, {"GPipe": (8, 0.3)}, "t", "l")
    ax = fig.axes[0]
    points = [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert points == [(held, pytest.approx(100 * share)) for held, share in COMPUTED.values()]
    (seen,) = [line for line in ax.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert tuple(seen.get_xydata()[0]) == (8, pytest.approx(30))
    assert set(COMPUTED) <= {text.get_text() for text in ax.texts}
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["computed", "measured"]


def test_measured_points_above_each_other_have_names():
    measured = {name: (held, share + 0.2) for name, (held, share) in COMPUTED.items()}
    texts = {text.get_text() for text in bubble_memory(COMPUTED, measured).axes[0].texts}
    assert {f"{name}, measured" for name in ("1F1B", "ZB-H1", "ZBV")} <= texts
    assert "GPipe, measured" not in texts


def test_names_of_close_points_do_not_lie_on_each_other():
    ax = bubble_memory({f"schedule {n}": (4, 0.2 + n / 1000) for n in range(6)}).axes[0]
    places = [text.xyann for text in ax.texts if text.get_text().startswith("schedule")]
    for (x, y), (other_x, other_y) in itertools.combinations(places, 2):
        assert abs(y - other_y) > 0.05 or abs(x - other_x) > 0.09


@pytest.mark.parametrize(
    ("computed", "measured"), [({}, {}), ({"a": (1, -0.1)}, {}), ({"a": (1, 0.1)}, {"b": (1, 0.1)})]
)
def test_points_that_cannot_be_drawn_are_refused(computed, measured):
    with pytest.raises(ValueError, match="a schedule or more"):
        bubble_memory(computed, measured)


def test_a_name_stands_at_its_own_point_and_on_no_line():
    computed = {
        "1F1B": (4, 0.375), "interleaved, v = 2": (5.5, 0.188), "interleaved, v = 4": (4.75, 0.094),
        "ZB-H1": (4, 0.125), "ZBV": (4, 0.0625), "ZB-H2": (7, 0.125),
    }  # fmt: skip
    measured = {name: (held, share + 0.1) for name, (held, share) in computed.items()}
    ax = bubble_memory(computed, measured).axes[0]
    right, top = ax.get_xlim()[1], ax.get_ylim()[1]
    for text in (text for text in ax.texts if text.get_text() in computed):
        (x, y), end = text.xyann, text.xyann[0] + _LETTER * len(text.get_text())
        held, share = computed[text.get_text()]
        assert min(abs(x - held / right), abs(end - held / right)) < 0.03 and abs(y - 100 * share / top) < 0.2
        for low, high in zip(computed.values(), measured.values(), strict=True):
            struck = x < low[0] / right < end and 100 * low[1] / top < y < 100 * high[1] / top
            assert not struck, text.get_text()
