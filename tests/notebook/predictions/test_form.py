import pytest

from dtlearn.notebook.predictions.form import form
from dtlearn.notebook.predictions.predict import Prediction


@pytest.fixture(autouse=True)
def live(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    monkeypatch.setattr("dtlearn.notebook.predictions.predict.find_answer", lambda id: {"explain": f"Why {id}."})


def ask():
    return Prediction("How many?", "bytes", {}, "ch01.sent")


def choose():
    return Prediction("Which?", "", {"A": "a ring", "B": "a tree"}, "ch01.which")


def parts(p):
    """Field, button and line of a form."""
    field, row = form(p).children
    return field, *row.children


def test_the_form_commits_a_number():
    p = ask()
    field, button, line = parts(p)
    assert field.description == "Your prediction, in bytes:" and field.placeholder == "such as 4 MB"
    button.click()
    assert "write a number" in line.value and p.answer is None
    field.value = "4,096"
    button.click()
    assert p.answer == 4096 and "Committed: 4,096 bytes" in line.value


def test_enter_commits_and_a_good_number_replaces_the_complaint():
    p = ask()
    field, _, line = parts(p)
    field.value = "lots"  # what the browser sends on Enter, and when the field is left
    assert "Not committed: &#x27;lots&#x27; is not a number" in line.value and p.answer is None
    field.value = "5"
    assert p.answer == 5 and "Committed: 5 bytes" in line.value and "lots" not in line.value


def test_the_form_commits_a_choice():
    p = choose()
    field, button, line = parts(p)
    assert field.options == ("A", "B") and field.value is None
    button.click()
    assert "choose an option" in line.value
    field.value = "B"
    assert line.value == "" and p.answer is None, "the complaint is gone, and nothing is committed by looking"
    button.click()
    assert p.answer == "B"


def test_an_earlier_answer_stands_in_the_form():
    p, q = ask(), choose()
    p.answer, q.answer = 4096.0, "B"
    field, _, line = parts(p)
    assert field.value == "4,096" and "Committed earlier: 4,096 bytes" in line.value
    assert parts(q)[0].value == "B"


def test_after_reveal_the_answer_stands():
    p = ask()
    p.commit(4)
    field, button, line = parts(p)
    p.reveal(8)
    field.value = "8"
    button.click()
    assert p.answer == 4 and "already on the page" in line.value
