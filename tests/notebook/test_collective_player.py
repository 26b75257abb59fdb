import ipywidgets
import pytest

from dtlearn.notebook.collective_player import play_collective
from dtlearn.viz.network.placed_steps import circle, in_nodes
from tests.viz.collectives.test_collective_steps import chain


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    return outputs


def test_headless_it_is_one_figure_described_from_the_record(shown):
    play_collective(chain(), "A chain")
    assert shown[0]["text/plain"].startswith("Figure: A chain. 3 ranks, 1 chunk: 2 messages in 2 steps. Step 1: 0 to 1")
    assert "image/png" in shown[0]


def test_live_it_steps_from_the_state_before(shown, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    play_collective(chain(), "A chain")
    controls, page = shown[0].inside.children
    _, slider = controls.children
    assert isinstance(slider, ipywidgets.IntSlider) and (slider.min, slider.max) == (0, 2)
    assert "Step 0 of 2: before" in page.value
    slider.value = 2
    assert "Step 2 of 2: 1 message of 4 bytes" in page.value
    assert "A chain. 3 ranks" in shown[2]["text/html"]


def test_ranks_can_stand_on_a_circle_or_in_nodes(shown):
    phases = {"There": 1, "and on": 1}
    for places in (circle(3), in_nodes(3, 3)):
        play_collective(chain(), "A chain", places=places, phases=phases)
        assert shown[0]["text/plain"].startswith("Figure: A chain. 3 ranks") and "image/png" in shown[0]
        shown.clear()


def test_live_a_step_says_its_phase(shown, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    play_collective(chain(), "A chain", places=circle(3), phases={"There": 1, "and on": 1})
    controls, page = shown[0].inside.children
    controls.children[1].value = 2
    assert "Step 2 of 2: and on: 1 message of 4 bytes" in page.value
