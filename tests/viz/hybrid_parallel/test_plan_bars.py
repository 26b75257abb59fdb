import pytest
from matplotlib.colors import to_hex

from dtlearn.planner import find_model, parse_cluster, search_layouts, what_would_change_it, why_it_loses
from dtlearn.viz.hybrid_parallel.plan_bars import best_layout, layout_name, plan_bars, plan_words
from dtlearn.viz.style import ALARM, INK
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping
from tests.viz.hybrid_parallel.plans import all_layouts, best_layouts

GIB = 2**30


def widths(ax):
    """Lengths of the parts of each bar, from left to right, by row."""
    rows = {}
    for bar in ax.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2), []).append((bar.get_x(), bar.get_width()))
    return {row: [width for _, width in sorted(parts)] for row, parts in rows.items()}


def words_below(fig):
    return " ".join(text.get_text() for text in fig.texts)


def test_a_bar_is_the_planners_rows_one_after_the_other():
    plans = best_layouts()
    of_memory, of_time = plan_bars(plans, top=3).axes
    assert list(widths(of_memory)) == list(widths(of_time)) == [0, 1, 2]
    for row, plan in enumerate(plans[:3]):
        assert sum(widths(of_memory)[row]) == pytest.approx(plan.memory.total / GIB)
        assert sorted(widths(of_memory)[row]) == pytest.approx(sorted(n / GIB for n in plan.memory.rows.values() if n))
        assert sorted(widths(of_time)[row]) == pytest.approx(sorted(s for s in plan.step.rows.values() if s))
    assert [tick.get_text() for tick in of_memory.get_yticklabels()] == [layout_name(plan) for plan in plans[:3]]
    assert "GiB" in of_memory.get_xlabel() and "(s)" in of_time.get_xlabel()


def test_the_line_is_what_a_chip_has_and_a_layout_beyond_it_has_its_sum_in_the_warning_colour():
    fits, too_large = best_layouts()[0], max(all_layouts(), key=lambda plan: plan.memory.total)
    of_memory, _ = plan_bars([fits, too_large]).axes
    (line,) = of_memory.lines
    assert list(line.get_xdata()) == [80, 80]
    assert [to_hex(text.get_color()) for text in of_memory.texts] == [INK, ALARM]
    assert of_memory.get_xlim()[1] > too_large.memory.total / GIB


def test_no_sum_is_crossed_by_the_line():
    near = [plan for plan in all_layouts() if 66 * GIB < plan.memory.total < 80 * GIB][:5]
    assert near
    fig = plan_bars(near)
    for text in fig.axes[0].texts:
        assert text.get_position()[0] > 80


def test_labels_are_readable():
    for fig in (plan_bars(best_layouts()), best_layout("Llama 2 7B", 64, 3.125, 512, "H100")):
        texts = [text for ax in fig.axes for text in (*ax.texts, *ax.get_yticklabels(), ax.xaxis.label)]
        texts += [*fig.texts, *(entry for legend in fig.legends for entry in legend.get_texts())]
        assert not overlapping(fig, texts) and not cut_off(fig, texts)


def test_the_sliders_figure_is_the_search_with_why_the_runner_up_loses():
    cluster = parse_cluster("64xH100", 3.125e9)
    first, second = search_layouts(find_model("Llama 2 7B"), cluster, 512)[:2]
    words = words_below(best_layout("Llama 2 7B", 64, 3.125, 512, "H100"))
    assert f"Fastest layout that fits: {first.run.axes}" in words and "3.125 GB/s a GPU between nodes" in words
    assert why_it_loses(first, second) in words
    assert what_would_change_it(first, second).removeprefix("it") in words


def test_a_slower_network_changes_the_layout_and_a_slider_that_comes_back_draws_nothing_again():
    slow, fast = (best_layout("Llama 2 7B", 64, network, 512, "H100") for network in (3.125, 50.0))
    assert fast is best_layout("Llama 2 7B", 64, 50.0, 512, "H100")
    assert layout_on_top(slow) != layout_on_top(fast)


def layout_on_top(fig):
    return fig.axes[0].get_yticklabels()[0].get_text()


def test_what_fits_nowhere_is_said_in_words_that_a_slider_shows():
    with pytest.raises(ValueError, match="fits nowhere on 8 x A100-80GB"):
        best_layout("BLOOM 176B", 8, 25.0, 64)


def test_words():
    first = best_layouts()[0]
    words = plan_words(best_layouts(), top=2)
    assert f"{first.run.axes}, {first.step.total:.3g} s and {first.memory.total / GIB:.1f} GiB" in words
    assert words.count(" GiB") == 3 and "mostly computation" in words


def test_bad_input():
    with pytest.raises(ValueError, match="one plan or more on one kind of chip"):
        plan_bars([])
    other = search_layouts(find_model("mpt-7b"), parse_cluster("8xH100"), 64)
    with pytest.raises(ValueError, match="A100-80GB', 'H100-80GB"):
        plan_bars([best_layouts()[0], other[0]])
