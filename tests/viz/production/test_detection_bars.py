import pytest
from matplotlib.colors import same_color

from dtlearn.production.faults.story import Detection
from dtlearn.viz.production.detection_bars import NAMED, detection_bars, detection_words, rows_of
from tests.viz.production.drawn import lane_names, legend

FOUND = [
    Detection("kill", "run_ranks", "heartbeat", True, 1.0),
    Detection("kill", "run_ranks", "launcher", True, 0.05),
    Detection("kill", "torchrun", "launcher", True, 0.4),
    Detection("hang", "torchrun", "time-out", False, 4.0),
]


def test_a_panel_for_each_launcher_and_a_row_for_each_noticer():
    fig = detection_bars(FOUND, label="3 ranks")
    left, right = fig.axes
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["started by run_ranks", "started by torchrun"]
    assert lane_names(left) == ["launcher", "heartbeat", "time-out"]
    assert [bar.get_width() for bar in left.patches] == [0.05, 1.0]
    assert [bar.get_width() for bar in right.patches] == [0.4, 4.0]
    assert [same_color(bar.get_facecolor(), NAMED) for bar in right.patches] == [True, False]
    assert right.patches[1].get_hatch() == "////"
    assert [text.get_text() for text in left.texts] == ["kill", "50 ms", "1 s", "hang"]
    assert right.get_xlabel() == "from the fault to the notice (s)"
    assert legend(fig) == ["names the faulty rank", "says only that something is wrong"]


def test_the_earliest_notice_is_on_top():
    assert rows_of(FOUND) == {"kill": ["launcher", "heartbeat"], "hang": ["time-out"]}


def test_words():
    words = detection_words(FOUND)
    assert "kill under run_ranks: launcher after 50 ms, heartbeat after 1 s" in words
    assert "hang under torchrun: time-out after 4 s without the rank" in words


def test_nobody_noticed():
    with pytest.raises(ValueError, match="at least one detection"):
        detection_bars([])
