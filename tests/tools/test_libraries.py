"""The maker of .venv-libraries, without the network: an environment that sees the course's, and when it is current."""

import json
import subprocess
import sys
from pathlib import Path

import libraries
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def course(tmp_path):
    """A folder with the project's two files, and this environment as its `.venv`."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def test_it_sees_the_courses_packages_and_has_none_of_its_own(course):
    folder = course / ".venv-libraries"
    libraries.make_environment(folder, course)
    code = "import cloudpickle, sys; print(sys.prefix); print(cloudpickle.__file__)"
    prefix, place = subprocess.check_output([folder / "bin" / "python", "-c", code], text=True).split()
    assert Path(prefix) == folder and str(folder) not in place
    own = libraries.site_packages(folder / "bin" / "python")
    assert [file.name for file in own.iterdir()] == ["dtlearn-course.pth"]


def test_it_is_made_once(course, monkeypatch, capsys):
    done = []
    monkeypatch.setattr(libraries, "make_environment", lambda folder, root: folder.mkdir(exist_ok=True))
    monkeypatch.setattr(libraries, "install", lambda folder, root: done.append(folder))
    folder = libraries.main(course)
    assert libraries.main(course) == folder and done == [folder]
    assert "Installing DeepSpeed" in capsys.readouterr().out
    with (course / "constraints.txt").open("a") as pins:
        pins.write("# moved\n")
    libraries.main(course)
    assert done == [folder, folder]
    assert json.loads((folder / libraries.STAMP).read_text())["folder"] == str(course)


def test_an_installation_that_fails_leaves_no_stamp(course, monkeypatch):
    def fails(folder, root):
        raise SystemExit("pip could not install the libraries.")

    monkeypatch.setattr(libraries, "make_environment", lambda folder, root: folder.mkdir(exist_ok=True))
    monkeypatch.setattr(libraries, "install", fails)
    with pytest.raises(SystemExit, match="could not install"):
        libraries.main(course)
    assert not libraries.is_current(course / ".venv-libraries", course)


def test_it_names_what_the_extra_names(course):
    names = [line.partition(">")[0].partition("=")[0] for line in libraries.wanted(course)]
    assert names == ["deepspeed", "megatron-core", "fairscale", "transformers"]


def test_without_the_courses_environment_it_says_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match="make lab"):
        libraries.course_python(tmp_path)
