import matplotlib
from matplotlib.colors import to_rgb

from dtlearn.viz.style import _STYLES, RC, headline, new_figure, op_style, style


def texts(ax):
    return [t.get_text() for t in ax.texts] + [ax.get_title(loc="left")]


def test_settings_come_back():
    before = matplotlib.rcParams["font.size"], matplotlib.rcParams["svg.hashsalt"]
    with style():
        assert matplotlib.rcParams["svg.hashsalt"] == RC["svg.hashsalt"] == "dtlearn"
    assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["svg.hashsalt"]) == before


def test_variants_look_like_their_family():
    assert op_style("all_gather_into_tensor") == op_style("all_gather")
    assert op_style("reduce_scatter_tensor") == op_style("reduce_scatter")
    assert op_style("broadcast_object_list") == op_style("broadcast")
    assert op_style("isend") == op_style("send")
    assert op_style("something_new") not in _STYLES.values()


def test_no_two_families_look_alike():
    looks = {op: look for op, look in _STYLES.items() if not op.startswith("i")}
    assert len(set(looks.values())) == len(looks)


def test_operations_of_the_same_hatch_differ_in_lightness():
    """So that they are told apart in grey, too."""

    def lightness(color):
        r, g, b = to_rgb(color)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    assert abs(lightness(op_style("send").color) - lightness(op_style("recv").color)) > 0.2


def test_an_emulated_link_is_said_in_a_box():
    for label, boxes in (("gloo on CPU, emulated link (1 ms)", 1), ("gloo on CPU", 0)):
        ax = new_figure(2).add_subplot()
        headline(ax, "Title", f"run: {label}")
        assert f"run: {label}" in texts(ax) and "Title" in texts(ax)
        assert texts(ax).count("emulated link") == boxes
