import pytest

from dtlearn.cli.exercises.grade_reports import FORMATS, write_reports


def test_only_what_was_asked_for_is_written(tmp_path):
    write_reports([], {**dict.fromkeys(FORMATS), "json": tmp_path / "a.json"})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"] and (tmp_path / "a.json").read_text() == "[]\n"


def test_a_folder_that_went_away_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"--html: .*a\.html cannot be written: No such file"):
        write_reports([], {"html": tmp_path / "gone" / "a.html"})
