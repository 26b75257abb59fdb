import pytest
from make_images import IMAGES, check, main
from matplotlib.figure import Figure


@pytest.fixture
def folder(tmp_path):
    """Images as they should be, but for their drawings."""
    for name, (_, description) in IMAGES.items():
        svg = f'<svg xmlns="http://www.w3.org/2000/svg"><title>x</title><desc>{description}</desc></svg>'
        path = tmp_path / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg)
    return tmp_path


def test_images_that_are_all_there_pass(folder, capsys):
    assert check(folder) == []
    assert main(["--check"], folder) == 0
    assert capsys.readouterr().out == "images: all there\n"


def test_a_missing_image_is_found(folder, capsys):
    (folder / "ch01_ranks" / "hang.svg").unlink()
    assert check(folder) == ["ch01_ranks/hang.svg is missing: run tools/make_images.py"]
    assert main(["--check"], folder) == 1
    assert "hang.svg is missing" in capsys.readouterr().out


def test_without_a_folder_all_are_missing(tmp_path):
    assert len(check(tmp_path / "none")) == len(IMAGES)


def test_an_image_that_nothing_draws_is_found(folder):
    (folder / "ch01_ranks" / "old.svg").write_text("<svg/>")
    assert check(folder) == ["ch01_ranks/old.svg is not drawn by tools/make_images.py"]


@pytest.mark.parametrize("svg", ["<desc>another</desc>", "<desc></desc>", "<title>x</title>"])
def test_another_description_is_found(folder, svg):
    (folder / "ch01_ranks" / "hang.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{svg}</svg>')
    (problem,) = check(folder)
    assert problem.startswith("ch01_ranks/hang.svg has another description")


def test_only_some_are_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(IMAGES, "ch09_none/first", (Figure, "a"))
    monkeypatch.setitem(IMAGES, "ch09_none/second", (Figure, "b"))
    assert main(["--only", "ch09_none/s"], tmp_path) == 0
    assert capsys.readouterr().out == "images/ch09_none/second.svg\n"
    assert [path.name for path in tmp_path.rglob("*.svg")] == ["second.svg"]


def test_a_name_that_no_image_has_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--only", "ch99"], tmp_path)
    assert "no image begins with 'ch99'; there are ch01_ranks/training_steps" in capsys.readouterr().err


def test_every_image_has_a_description_that_says_something():
    assert all(len(description) > 40 for _, description in IMAGES.values())
