import ipywidgets
import pytest

from dtlearn.course import Exercise
from dtlearn.grading.verdict import Result, Verdict
from dtlearn.notebook.exercises import verdict_display
from dtlearn.notebook.exercises.verdict_display import VerdictDisplay
from tests.grading.report.test_own_run import EQUAL, SENT

EXERCISE = Exercise("ch01.average", "The mean", 4, (1, 2), ("a", "b", "c"))
VERDICT = Verdict("ch01.average", "The mean", "passed", 4, 4, results=(), seconds=1.5, seed=9, attempt=3)


@pytest.fixture
def shown(monkeypatch):
    outputs = []

    class Handle:
        def update(self, data, raw):
            outputs[-1] = data

    def display(data, raw, display_id):
        outputs.append(data)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    return outputs


def test_one_display_follows_and_ends_as_the_report(shown):
    display = VerdictDisplay(EXERCISE, live=True)
    display.start()
    assert shown[-1]["text/plain"] == "ch01.average: grading begins"
    display.progress(Result("small", 2, "passed"), 1, 2)
    assert "1 of 2" in shown[-1]["text/plain"] and "1 of 2" in shown[-1]["text/html"]
    assert display.show(VERDICT, ["kept <there>"]) is VERDICT
    assert "attempt 3, 1.5 s" in shown[-1]["text/plain"]
    assert "Note: kept <there>" in shown[-1]["text/plain"] and "kept &lt;there&gt;" in shown[-1]["text/html"]
    assert len(shown) == 1


def test_headless_nothing_is_shown_that_differs_from_run_to_run(shown):
    display = VerdictDisplay(EXERCISE, live=False)
    display.start()
    display.progress(Result("small", 2, "passed"), 1, 2)
    assert shown == []
    display.show(VERDICT)
    assert "PASSED" in shown[0]["text/plain"]
    assert "attempt" not in shown[0]["text/plain"] + shown[0]["text/html"]


def test_a_stopped_grading_claims_nothing(shown):
    display = VerdictDisplay(EXERCISE, live=True)
    display.start()
    display.progress(Result("small", 2, "passed"), 1, 2)
    display.stopped()
    assert shown[0]["text/plain"] == "ch01.average: the grading was stopped after 1 of 2 runs."


# Below the verdict.


@pytest.fixture
def below(monkeypatch):
    made = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: made.append(data))
    return made


def test_collectives_are_shown_as_one_folded_piece(below):
    verdict_display.show_own_run(EQUAL)
    (data,) = below
    assert data["text/html"].startswith("<details>") and data["text/plain"].startswith("Your run with 2 ranks")


def test_messages_can_be_played_and_are_drawn_when_somebody_opens_them(below, monkeypatch):
    played = []
    monkeypatch.setattr(
        "dtlearn.notebook.collective_player.play_collective", lambda record, title: played.append((record, title))
    )
    verdict_display.show_own_run(SENT)
    fold = below[1].inside
    assert isinstance(fold, ipywidgets.Accordion) and fold.selected_index is None and not played
    fold.selected_index = 0
    assert played == [(SENT.record, "Your run with 2 ranks (short)")]


def test_a_run_that_cannot_be_drawn_takes_nothing_from_the_verdict(below, monkeypatch, capsys):
    def fail(run):
        raise RuntimeError("no font")

    monkeypatch.setattr("dtlearn.grading.report.own_run.html", fail)
    verdict_display.show_own_run(EQUAL)
    assert "could not be drawn (RuntimeError: no font); the verdict above stands" in capsys.readouterr().out
