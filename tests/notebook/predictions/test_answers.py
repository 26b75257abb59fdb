import pytest

from dtlearn.notebook.predictions import answers


@pytest.fixture
def folder(monkeypatch, tmp_path):
    folder = tmp_path / "notebooks" / "answers"
    folder.mkdir(parents=True)
    monkeypatch.setattr(answers, "find_root", lambda: tmp_path)
    return folder


def test_an_entry_is_found_by_chapter_and_name(folder):
    (folder / "ch02.toml").write_text('[late]\nchoice = "B"\nexplain = "It waits {seconds:.1f} s."\n', encoding="utf-8")
    entry = answers.find_answer("ch02.late")
    assert entry["choice"] == "B"
    assert answers.explanation("ch02.late", entry, {"seconds": 0.25}) == "It waits 0.2 s."


@pytest.mark.parametrize("values", [{}, {"seconds": "long"}])
def test_values_that_do_not_fit_are_told(values):
    with pytest.raises(ValueError, match=r"the explanation of ch02\.late does not fit"):
        answers.explanation("ch02.late", {"explain": "{seconds:.1f}"}, values)


@pytest.mark.parametrize(
    ("id", "text", "says"),
    [
        ("ch02.late", None, r"answers/ch02\.toml cannot be read: No such file"),
        ("ch02.late", "[late", r"answers/ch02\.toml cannot be read: Expected"),
        ("ch02.late", "[early]", r"has no \[late\], which is the answer to ch02\.late"),
        ("../ch02.late", "", "must look like ch01.late"),
    ],
)
def test_what_is_not_there_is_told(folder, id, text, says):
    if text is not None:
        (folder / "ch02.toml").write_text(text)
    with pytest.raises(ValueError, match=says):
        answers.find_answer(id)
