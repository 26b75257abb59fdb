"""Folders of runs: private, and deleted later when their program and its agent were both killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtlearn.runtime.machine.run_folder import delete_folder, delete_stale_directories, new_run_directory, run_directory


@pytest.fixture
def folder(temp_root):
    with run_directory() as path:
        yield path


def test_a_folder_is_private_short_and_deleted():
    with run_directory() as path:
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "file").write_text("x")
    assert not path.exists()


def test_a_folder_in_use_stays(folder):
    assert delete_stale_directories() == []
    assert folder.is_dir()


def test_the_folder_of_a_program_that_was_killed_is_deleted(temp_root):
    code = "from dtlearn.runtime.machine.run_folder import new_run_directory as new; import os; print(new()); "
    code += "os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    assert len(stale := list(temp_root.glob("dtlearn-*"))) == 1
    assert delete_stale_directories() == stale
    assert not stale[0].exists()


@pytest.mark.parametrize(
    "change",
    [{"start": 1}, {"start": 1, "boot": "another"}, {"start": 1, "space": "pid:[1]"}, {"start": None}, {"pid": "x"}],
    ids=["number used again", "other machine", "other container", "no start", "nonsense"],
)
def test_only_what_is_certainly_nobodys_is_deleted(folder, change):
    owner = folder / "owner.json"
    owner.write_text(json.dumps({**json.loads(owner.read_text()), **change}))
    assert (delete_stale_directories() == [folder]) == (change == {"start": 1})


def test_a_folder_that_only_has_the_name_stays(temp_root):
    lookalike = temp_root / "dtlearn-mine"
    lookalike.mkdir()
    (lookalike / "work").write_text("a learner's")
    link = temp_root / "dtlearn-link"
    link.symlink_to(lookalike)
    try:
        assert delete_stale_directories() == []
        assert (lookalike / "work").exists()
    finally:
        link.unlink()
        (lookalike / "work").unlink()
        lookalike.rmdir()


def test_a_new_folder_says_whose_it_is(temp_root):
    path = new_run_directory()
    try:
        assert json.loads(Path(path, "owner.json").read_text())["pid"] == os.getpid()
    finally:
        (path / "owner.json").unlink()
        path.rmdir()


def test_a_folder_of_any_depth_is_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for _ in range(1500):
        os.mkdir("deep")
        os.chdir("deep")
    os.chdir(folder)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").touch()
    (folder / "closed").chmod(0)
    (folder / "link").symlink_to(tmp_path)
    os.chdir(tmp_path)
    delete_folder(folder)
    assert tmp_path.exists() and not folder.exists()
