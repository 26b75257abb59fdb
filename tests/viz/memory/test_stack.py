from matplotlib.figure import Figure

from dtlearn.viz.memory.stack import draw_phases, draw_stack
from tests.viz.memory.records import record


def test_the_stack_has_its_categories_from_the_bottom_and_fills_the_width():
    ax = Figure().add_subplot()
    assert draw_stack(ax, record()) == ["parameters", "gradients", "activations", "temporaries"]
    assert ax.get_xlim() == (0, 5)
    assert list(ax.lines[-1].get_ydata()) == [2, 5, 6, 10, 6, 3]


def test_phases_are_lines_with_names_if_asked_for():
    for names in (True, False):
        ax = Figure().add_subplot()
        draw_phases(ax, record(), names)
        assert [text.get_text() for text in ax.texts] == (["forward", "backward"] if names else [])
        assert [list(line.get_xdata()) for line in ax.lines] == [[1, 1]]
