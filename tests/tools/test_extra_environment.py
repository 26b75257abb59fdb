"""The environment of an extra: what is in it, and when it is made anew. Nothing is downloaded here."""

import json
import subprocess
import sys
from pathlib import Path

import extra_environment
import pytest

PROJECT = '[project]\nname = "x"\n[project.optional-dependencies]\nwatching = ["wandb>=0.20"]\nother = []\n'


@pytest.fixture
def root(tmp_path):
    """A repository whose `.venv` is the environment of these tests."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "constraints.txt").write_text("wandb==0.31.0\n")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.fixture
def installed(monkeypatch):
    """Calls of pip, which are noted and not made."""
    calls = []
    monkeypatch.setattr(extra_environment, "install", lambda folder, extra, root: calls.append((folder.name, extra)))
    return calls


def test_it_sees_the_packages_of_the_course(root, installed):
    folder = extra_environment.bring_up_to_date("watching", root)
    assert (folder, installed) == (root / ".venv-watching", [(".venv-watching", "watching")])
    code = "import numpy, sys; print(sys.prefix, numpy.__file__)"
    prefix, numpy_file = subprocess.check_output([folder / "bin" / "python", "-c", code], text=True).split()
    assert Path(prefix) == folder and not Path(numpy_file).is_relative_to(folder)
    assert not list(extra_environment.site_packages(folder / "bin" / "python").glob("numpy*"))


def test_it_is_made_anew_only_when_names_or_pins_change(root, installed, monkeypatch):
    made = []
    monkeypatch.setattr(
        extra_environment, "make_environment", lambda folder, _: (folder.mkdir(exist_ok=True), made.append(1))
    )
    for _ in range(2):
        extra_environment.bring_up_to_date("watching", root)
    assert len(made) == 1
    (root / "constraints.txt").write_text("wandb==0.31.1\n")
    extra_environment.bring_up_to_date("watching", root)
    (root / "pyproject.toml").write_text(PROJECT.replace("0.20", "0.30"))
    extra_environment.bring_up_to_date("watching", root)
    (root / "pyproject.toml").write_text(PROJECT.replace("0.20", "0.30") + "# a comment\n")
    extra_environment.bring_up_to_date("watching", root)
    assert len(made) == len(installed) == 3
    stamp = json.loads((root / ".venv-watching" / extra_environment.STAMP).read_text())
    assert stamp["wanted"] == ["wandb>=0.30"]


def test_an_installation_that_failed_is_tried_again(root, monkeypatch):
    tried = []

    def install(*_):
        tried.append(1)
        raise SystemExit("no network")

    monkeypatch.setattr(extra_environment, "install", install)
    monkeypatch.setattr(extra_environment, "make_environment", lambda folder, _: folder.mkdir(exist_ok=True))
    for _ in range(2):
        with pytest.raises(SystemExit, match="no network"):
            extra_environment.bring_up_to_date("watching", root)
    assert len(tried) == 2


def test_what_is_not_there_is_named(root):
    with pytest.raises(SystemExit, match=r"no extra 'watchin'; it has watching, other"):
        extra_environment.bring_up_to_date("watchin", root)
    (root / ".venv").unlink()
    with pytest.raises(SystemExit, match=r"There is no \.venv yet"):
        extra_environment.bring_up_to_date("watching", root)


def test_this_repository_has_the_extra():
    assert {name.split(">")[0] for name in extra_environment.wanted("watching", extra_environment.ROOT)} == {
        "wandb",
        "ray[tune]",
    }
