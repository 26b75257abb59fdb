import ipywidgets
import pytest

from dtlearn.notebook.panels import Slider, _slider_widget, _step_widget, slider_panel, stepper
from dtlearn.viz.picture import Picture
from dtlearn.viz.style import new_figure

CAPTIONS = ["start", "one step", "done"]
SIZE = (3.0, 2.4)


def frame(k):
    return lambda ax: ax.bar(range(4), [k + 1] * 4)


FRAMES = [frame(k) for k in range(3)]


def static(alt="All of it."):
    return Picture(new_figure(2), alt)


def draw(n, speed):
    if n == 8:
        raise ValueError("8 is too many")
    fig = new_figure(2)
    fig.add_subplot().bar(range(n), [speed] * n)
    return fig


SLIDERS = {"n": Slider((2, 4, 8), 4, "ranks"), "speed": Slider((1, 10), 1, "speed (GB/s)")}


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    return outputs


def test_headless_stepper_is_a_picture_and_its_words(shown):
    stepper(FRAMES, CAPTIONS, "Bars.", SIZE, static())
    assert [list(o) for o in shown] == [["image/png", "text/plain"], ["text/html", "text/plain"]]


def test_live_stepper_has_the_static_form_too(shown, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    stepper(FRAMES, CAPTIONS, "Bars.", SIZE, static())
    widget, note, fold = shown
    assert isinstance(widget.inside, ipywidgets.VBox) and "Run this cell to go through the steps." in note["text/plain"]
    assert 'alt="All of it."' in fold["text/html"] and fold["text/plain"] == "Figure: All of it."
    assert fold["text/html"].startswith("<details>")


def test_moving_the_step_turns_the_page():
    controls, page = _step_widget(FRAMES, CAPTIONS, "Bars.", SIZE).children
    _, slider = controls.children
    assert "Step 0 of 2: start" in page.value
    slider.value = 2
    assert "Step 2 of 2: done" in page.value
    slider.value = 1
    assert "Step 1 of 2: one step" in page.value


def test_headless_slider_panel_is_the_start_and_a_table(shown):
    slider_panel(draw, "Bars of ranks.", **SLIDERS)
    assert [list(o) for o in shown[:2]] == [["image/png", "text/plain"], ["text/html", "text/plain"]]
    assert shown[2].rows == (("ranks", "4", "2; 4; 8"), ("speed (GB/s)", "1", "1; 10"))


def test_live_slider_panel_has_the_static_form_too(shown, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    slider_panel(draw, "Bars of ranks.", **SLIDERS)
    widget, note, static = shown
    assert isinstance(widget.inside, ipywidgets.VBox) and "Run this cell to change the values." in note["text/plain"]
    assert "<img" in static["text/html"] and "<table>" in static["text/html"]
    assert "speed (GB/s)" in static["text/plain"]


def test_moving_a_slider_draws_again():
    ranks, speed, page, _ = _slider_widget(draw, "Bars.", SLIDERS).children
    first = page.value
    assert "ranks = 4, speed (GB/s) = 1" in first
    speed.value = 10
    assert "speed (GB/s) = 10" in page.value and page.value != first
    ranks.value = 8
    assert 'role="alert"' in page.value and "8 is too many" in page.value
    ranks.value = 2
    assert "<img" in page.value


def test_a_field_beside_a_slider_takes_what_the_slider_has_not():
    sliders = {"n": Slider((1000, 2000), 1000, "ranks", read=lambda text: len(text)), "speed": SLIDERS["speed"]}
    row, speed, page, _ = _slider_widget(draw, "Bars.", sliders).children
    slider, field = row.children
    assert not slider.readout and field.value == "1,000" and "ranks = 1,000, speed" in page.value
    slider.value = 2000
    assert field.value == "2,000" and "ranks = 2,000, speed" in page.value
    field.value = "12345678"  # of length 8
    assert 'role="alert"' in page.value and "ranks = 12345678" in page.value and "8 is too many" in page.value
    speed.value = 10
    assert "ranks = 12345678, speed (GB/s) = 10" in page.value
    field.value = "<b>"
    assert "<img" in page.value and "<b>" not in page.value


def test_nothing_uses_pyplot(shown, monkeypatch):
    import sys

    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    stepper(FRAMES, CAPTIONS, "Bars.", SIZE, static())
    slider_panel(draw, "Bars.", **SLIDERS)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stepper([], [], "x", SIZE, static()), "one caption per frame"),
        (lambda: stepper(FRAMES, ["a"], "x", SIZE, static()), "not 1 for 3"),
        (lambda: slider_panel(draw, "x"), "at least one slider"),
        (lambda: Slider((1, 2), 3, "ranks"), "not one of its values"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
