import ipywidgets
import pytest
from matplotlib.figure import Figure

from dtlearn.notebook.kept_predictions import STORE
from dtlearn.notebook.predict import form, predict
from dtlearn.viz.picture import Picture


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """What is displayed, in a fresh folder."""
    monkeypatch.chdir(tmp_path)
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    return outputs


@pytest.fixture
def live(monkeypatch, shown):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    return shown


def ask():
    return predict("How many <bytes>?", kind="number", unit="bytes")


def choose():
    return predict.choice("Which?", {"A": "a ring", "B": Picture(Figure(), alt="a tree")})


def test_headless_shows_the_question_and_nothing_else(shown):
    ask()
    assert [list(o) for o in shown] == [["text/html", "text/plain"]]
    assert "How many &lt;bytes&gt;?" in shown[0]["text/html"]
    asked, note = shown[0]["text/plain"].split("\n")
    assert asked == "Predict. How many <bytes>?"
    assert note == "Commit the number in bytes before you read on: run this cell for a form to fill in."


def test_headless_reads_and_writes_no_file(shown, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    ask().commit(5)
    monkeypatch.setenv("DTLEARN_HEADLESS", "1")
    before = STORE.read_text()
    p = ask()
    assert p.answer is None
    p.commit(6)
    assert STORE.read_text() == before


def test_reveal_works_without_a_commitment(shown):
    ask().reveal(8e6, explain="Two tensors <of 4 MB>.")
    assert shown[-1]["text/plain"] == "It was 8 MB. No prediction was committed.\nTwo tensors <of 4 MB>."
    assert "&lt;of 4 MB&gt;" in shown[-1]["text/html"]


@pytest.mark.parametrize(
    ("answer", "actual", "verdict"),
    [
        ("4 MB", 8e6, "You said 4 MB, it was 8 MB: 2x what you said."),
        ("8 MB", 2e6, "You said 8 MB, it was 2 MB: 0.25x what you said."),
        (37_672, 37_672, "You said 37,672 bytes, and so it was."),
        (0, 100, "You said 0 bytes, it was 100 bytes."),
    ],
)
def test_verdict_of_a_number(shown, answer, actual, verdict):
    p = ask()
    p.commit(answer)
    assert p.verdict(actual) == verdict


def test_verdict_of_a_choice(shown):
    p = choose()
    p.commit("A")
    assert p.verdict("B") == "You chose A (a ring); it was B (a tree)."
    assert p.verdict("A") == "You chose A (a ring), and so it was."


def test_pictures_are_shown_with_their_letters(shown):
    choose()
    kinds = [sorted(o) for o in shown]
    assert kinds[1:] == [["text/markdown", "text/plain"], ["image/png", "text/plain"], ["text/html", "text/plain"]]
    assert shown[1]["text/plain"] == "B:"
    assert "A: a ring" in shown[0]["text/plain"] and "B: a tree" in shown[0]["text/plain"]


def test_a_live_answer_is_there_after_a_second_run(live):
    p = ask()
    assert p.commit("4 MB") == "Committed: 4 MB. You can change it until the answer is shown."
    assert ask().answer == 4e6
    assert predict("Another?", unit="bytes").answer is None
    choose().commit("B")
    assert choose().answer == "B"


def test_an_unwritable_folder_is_said_and_the_lesson_goes_on(live, tmp_path):
    (tmp_path / ".dtlearn").write_text("")
    p = ask()
    assert "cannot be written" in p.commit(4)
    p.reveal(8)
    assert live[-1]["text/plain"].startswith("You said 4 bytes, it was 8 bytes: 2x")


def test_the_form_commits_a_number(live):
    p = ask()
    field, button, line = form(p, ipywidgets).children
    assert "bytes" in field.description
    button.click()
    assert "write a number" in line.value and p.answer is None
    field.value = "lots"
    button.click()
    assert "Not committed: &#x27;lots&#x27; is not a number" in line.value and p.answer is None
    field.value = "4,096"
    button.click()
    assert p.answer == 4096 and "Committed: 4,096 bytes" in line.value
    field, _, line = form(ask(), ipywidgets).children
    assert field.value == "4,096" and "Committed earlier" in line.value


def test_the_form_commits_a_choice(live):
    p = choose()
    field, button, line = form(p, ipywidgets).children
    assert field.options == ("A", "B") and field.value is None
    button.click()
    assert "choose an option" in line.value
    field.value = "B"
    button.click()
    assert p.answer == "B"
    assert form(choose(), ipywidgets).children[0].value == "B"


def test_after_reveal_the_answer_stands(live):
    p = ask()
    p.commit(4)
    field, button, line = form(p, ipywidgets).children
    p.reveal(8)
    field.value = "8"
    button.click()
    assert p.answer == 4 and "already on the page" in line.value


def test_running_all_cells_at_once_spoils_nothing(live):
    p = ask()
    p.reveal(8, explain="Two of four.")
    before, folded = live[-1]["text/html"].split("<details>")
    assert "commit one above" in before and "8 bytes" not in before
    assert "It was 8 bytes." in folded and "Two of four." in folded
    p.commit(4)
    p.reveal(8)
    assert "<details>" not in live[-1]["text/html"] and "2x what you said" in live[-1]["text/html"]


def test_live_without_widgets_says_what_to_do(live, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "ipywidgets", None)
    ask()
    assert "p.commit(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict("?", kind="choice"), "predict.choice"),
        (lambda: predict.choice("?", {"A": "x"}), "at least two"),
        (lambda: predict.choice("?", {"A": "x", "B": Figure()}), r"option B: .*Picture"),
        (lambda: ask().commit("x"), "not a number"),
        (lambda: ask().verdict("x"), "must be a number"),
        (lambda: choose().commit("C"), "choose one of A, B"),
        (lambda: choose().verdict("C"), "options are A, B"),
    ],
)
def test_bad_input(shown, call, message):
    with pytest.raises(ValueError, match=message):
        call()
