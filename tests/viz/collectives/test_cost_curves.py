import pytest

from dtlearn.viz.collectives.cost_curves import Curve, cost_bars, cost_curves, fit_words


def legend(fig):
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_points_and_lines_are_the_data():
    curve = Curve("ring", {1e3: 1e-4, 1e6: 2e-3}, lambda n: 1e-4 + n * 2e-9, fit_words(1e-4, 5e8, 0.07))
    fig = cost_curves([curve, Curve("gloo", {1e3: 5e-5, 1e6: 1e-3})], "All-reduce", "measured here")
    line, points, joined, _ = fig.axes[0].lines
    assert line.get_xdata()[0] == pytest.approx(1e3) and list(line.get_ydata())[-1] == pytest.approx(2.1e-3)
    assert list(points.get_xdata()) == [1e3, 1e6] and list(points.get_ydata()) == [1e-4, 2e-3]
    assert list(joined.get_ydata()) == [5e-5, 1e-3]
    assert (fig.axes[0].get_xscale(), fig.axes[0].get_yscale()) == ("log", "log")
    assert legend(fig) == ["ring: 100 us a message, 500 MB/s, points differ by up to 7%", "gloo"]


def test_a_bandwidth_that_was_lost_in_noise_is_not_a_number():
    assert (
        fit_words(1e-4, float("inf"), 2.5) == "100 us a message, no bandwidth to be seen, points differ by up to 250%"
    )


def test_a_model_needs_no_points_and_crossings_have_words():
    fig = cost_curves([Curve("tree", None, lambda n: n)], "t", "model", (1.0, 1e6), {"ring is faster": 1e4})
    assert fig.axes[0].lines[0].get_xdata()[-1] == pytest.approx(1e6)
    assert "ring is faster" in [t.get_text() for t in fig.axes[0].texts]


def test_few_powers_of_ten_have_lines_between():
    near = cost_curves([Curve("a", {1: 1e-3, 100: 2e-2})], "t", "").axes[0]
    far = cost_curves([Curve("a", {1: 1e-6, 100: 1.0})], "t", "").axes[0]
    inside = [t for t in near.get_yticks() if near.get_ylim()[0] <= t <= near.get_ylim()[1]]
    assert len(inside) >= 3
    assert all(round(t / s, 6) == 10 for s, t in zip(far.get_yticks(), far.get_yticks()[1:], strict=False))


def test_bars_stack_latency_and_transfer():
    costs = {"1 MB": {"ring": (6e-3, 1e-3), "tree": (1e-3, 2e-3)}, "1 GB": {"ring": (6e-3, 0.1), "tree": (1e-3, 0.9)}}
    fig = cost_bars(costs, "384 GPUs", "model")
    left, right = fig.axes
    widths = [[bar.get_width() for bar in bars] for bars in left.containers]
    assert widths == [[6e-3, 1e-3], [1e-3, 2e-3]]
    bold = [t.get_text() for t in right.texts if t.get_weight() == "bold"]
    assert bold == ["106 ms"]  # the fastest
    assert right.get_xlabel() == "time for 1 GB"


def test_bad_input():
    with pytest.raises(ValueError, match="1 to 6 curves; got 0"):
        cost_curves([], "t", "")
    with pytest.raises(ValueError, match="give sizes"):
        cost_curves([Curve("a", None, lambda n: n)], "t", "")
    with pytest.raises(ValueError, match="same algorithms"):
        cost_bars({"a": {"x": (1, 1)}, "b": {"y": (1, 1)}}, "t", "")
