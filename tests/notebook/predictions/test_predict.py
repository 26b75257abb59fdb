import pytest
from matplotlib.figure import Figure

from dtlearn.notebook.predictions.kept import STORE
from dtlearn.notebook.predictions.predict import predict
from dtlearn.viz.picture import Picture


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """What is displayed, in a fresh folder."""
    monkeypatch.chdir(tmp_path)
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    return outputs


@pytest.fixture(autouse=True)
def answers(monkeypatch, tmp_path):
    """An answers file of chapter 1."""
    folder = tmp_path / "course" / "notebooks" / "answers"
    folder.mkdir(parents=True)
    text = '[sent]\nexplain = "{tensors} tensors of `4 MB`: {actual:.0f}."\n[plain]\nexplain = "By its <size>."\n'
    text += '[which]\nchoice = "B"\nexplain = "By its <depth>."\n'
    (folder / "ch01.toml").write_text(text)
    monkeypatch.setattr("dtlearn.notebook.predictions.answers.find_root", lambda: tmp_path / "course")
    return folder


@pytest.fixture
def live(monkeypatch, shown):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    return shown


def ask():
    return predict("How many <bytes>?", unit="bytes", id="ch01.plain")


def choose():
    return predict.choice("Which?", {"A": "a ring", "B": Picture(Figure(), alt="a tree")}, id="ch01.which")


def test_headless_shows_the_question_and_nothing_else(shown):
    ask()
    assert [list(o) for o in shown] == [["text/html", "text/plain"]]
    assert "How many &lt;bytes&gt;?" in shown[0]["text/html"]
    asked, note = shown[0]["text/plain"].split("\n")
    assert asked == "Predict. How many <bytes>?"
    assert note == "Commit the number in bytes before you read on: run this cell for a form to fill in."


def test_above_a_live_form_nothing_says_that_there_will_be_one(live):
    ask()
    assert live[0]["text/plain"] == "Predict. How many <bytes>?"
    assert "for a form" not in live[0]["text/html"]


def test_headless_reads_and_writes_no_file(shown, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    ask().commit(5)
    monkeypatch.setenv("DTLEARN_HEADLESS", "1")
    before = STORE.read_text()
    p = ask()
    assert p.answer is None
    p.commit(6)
    assert STORE.read_text() == before


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
    assert predict("Another?", unit="bytes", id="ch01.plain").answer is None
    choose().commit("B")
    assert choose().answer == "B"


def test_an_unwritable_folder_is_said_and_the_lesson_goes_on(live, tmp_path):
    (tmp_path / ".dtlearn").write_text("")
    p = ask()
    assert "cannot be written" in p.commit(4)
    p.reveal(8)
    assert live[-1]["text/plain"].startswith("You said 4 bytes, it was 8 bytes: 2x")


def test_running_all_cells_at_once_spoils_nothing(live):
    p = ask()
    p.reveal(8)
    before, folded = live[-1]["text/html"].split("<details>")
    assert "commit one above" in before and "8 bytes" not in before
    assert "It was 8 bytes." in folded and "By its &lt;size&gt;." in folded
    p.commit(4)
    p.reveal(8)
    assert "<details>" not in live[-1]["text/html"] and "2x what you said" in live[-1]["text/html"]


def test_what_happened_comes_from_the_answers_file_and_is_folded_in_shipped_outputs(shown):
    predict("How many?", unit="bytes", id="ch01.sent").reveal(8e6, tensors=2)
    assert shown[-1]["text/plain"] == "What happened is folded here, so that you can predict it first."
    before, folded = shown[-1]["text/html"].split("<details>")
    assert "<p>" not in before
    assert "<p>It was 8 MB.</p><p>2 tensors of <code>4 MB</code>: 8000000.</p>" in folded


def test_a_choice_takes_its_letter_from_the_answers_file(live):
    p = predict.choice("Which?", {"A": "a ring", "B": "a tree"}, id="ch01.which")
    p.reveal()
    before, folded = live[-1]["text/html"].split("<details>")
    assert "commit one above" in before and "It was B (a tree)." in folded and "&lt;depth&gt;" in folded
    p.commit("B")
    p.reveal()
    assert live[-1]["text/plain"] == "You chose B (a tree), and so it was.\nBy its <depth>."
    assert "<details>" not in live[-1]["text/html"]


def test_an_answers_file_that_does_not_fit_is_told(shown):
    p = predict("How many?", id="ch01.sent")
    with pytest.raises(ValueError, match=r"ch01.sent does not fit .*\(actual\): KeyError\('tensors'\)"):
        p.reveal(8)
    with pytest.raises(ValueError, match="needs the outcome"):
        p.reveal(tensors=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict.choice("?", {"A": "x"}, id="ch01.which"), "at least two"),
        (lambda: predict.choice("?", {"A": "x", "B": Figure()}, id="ch01.which"), r"option B: .*Picture"),
        (lambda: ask().commit("x"), "not a number"),
        (lambda: ask().verdict("x"), "must be a number"),
        (lambda: choose().commit("C"), "choose one of A, B"),
        (lambda: choose().verdict("C"), "options are A, B"),
    ],
)
def test_bad_input(shown, call, message):
    with pytest.raises(ValueError, match=message):
        call()
