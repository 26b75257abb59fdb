"""What stands below a verdict: folded, and played only when it is opened."""

import ipywidgets
import pytest

from dtlearn.notebook import own_run_display
from tests.grading.report.test_own_run import EQUAL, SENT


@pytest.fixture
def shown(monkeypatch):
    made = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: made.append(data))
    return made


def test_collectives_are_shown_as_one_folded_piece(shown):
    own_run_display.show_own_run(EQUAL)
    (data,) = shown
    assert data["text/html"].startswith("<details>") and data["text/plain"].startswith("Your run with 2 ranks")


def test_messages_can_be_played_and_are_drawn_when_somebody_opens_them(shown, monkeypatch):
    played = []
    monkeypatch.setattr(own_run_display, "play_collective", lambda record, title: played.append((record, title)))
    own_run_display.show_own_run(SENT)
    fold = shown[1]
    assert isinstance(fold, ipywidgets.Accordion) and fold.selected_index is None and not played
    fold.selected_index = 0
    assert played == [(SENT.record, "Your run with 2 ranks (short)")]


def test_a_run_that_cannot_be_drawn_takes_nothing_from_the_verdict(shown, monkeypatch, capsys):
    def fail(run):
        raise RuntimeError("no font")

    monkeypatch.setattr(own_run_display, "html", fail)
    own_run_display.show_own_run(EQUAL)
    assert "could not be drawn (RuntimeError: no font); the verdict above stands" in capsys.readouterr().out
