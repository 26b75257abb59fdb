"""The installer, without the network: what it decides, what it says, and one run to the point where pip is needed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import bootstrap
import bootstrap_python
import pytest
from bootstrap import PipError
from bootstrap_python import BootstrapError, find_python, python_version

ROOT = Path(__file__).resolve().parents[2]
HERE = list(sys.version_info[:2])


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A folder with the project's two files and an environment that was completely installed, for `bootstrap`."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", venv)
    monkeypatch.setattr(bootstrap, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", venv / "stamp.json")
    write_pip(venv)
    write_stamp(tmp_path)
    return tmp_path


def write_pip(venv: Path, says: str | None = None) -> None:
    pip = venv / "bin" / "pip"
    pip.write_text(f"#!/bin/sh\necho 'pip 24 from {says or venv}/lib'\n")
    pip.chmod(0o755)


def write_stamp(root: Path, **changes: object) -> None:
    stamp = {"folder": str(root), "inputs": bootstrap.inputs_hash(), "extras": ["test"], "torch": "cpu"}
    bootstrap.STAMP.write_text(json.dumps({**stamp, **changes}))


@pytest.fixture
def steps(monkeypatch):
    """What `bootstrap` would do, instead of doing it."""
    done = []
    monkeypatch.setattr(bootstrap, "make_venv", lambda python: done.append("venv"))
    monkeypatch.setattr(bootstrap, "install_torch", lambda build: done.append(f"torch {build}"))
    monkeypatch.setattr(bootstrap, "pip_install", lambda *arguments: done.append(arguments[-1]))
    monkeypatch.setattr(bootstrap, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")
    return done


def test_an_old_python_is_named_with_a_way_out(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BootstrapError) as error:
        find_python()
    for text in ("3.11 or newer", "Python 3.8.18", sys.executable, "python3.12-venv", "make lab PYTHON="):
        assert text in str(error.value)


def test_a_newer_python_on_path_is_taken(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    # A name on PATH may be a shim that runs nothing.
    versions = {"/opt/python3.13": None, "/opt/python3.12": (3, 12)}
    monkeypatch.setattr(bootstrap_python, "python_version", versions.get)
    assert find_python() == "/opt/python3.12"


def test_the_python_asked_for_must_run_and_be_new_enough(tmp_path):
    assert find_python(sys.executable) == sys.executable
    with pytest.raises(BootstrapError, match="not a Python that runs here"):
        find_python("no-such-python")
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3 9\n")
    old.chmod(0o755)
    with pytest.raises(BootstrapError, match=r"is Python 3\.9"):
        find_python(str(old))


def test_versions_of_interpreters(tmp_path):
    assert python_version(sys.executable) == tuple(HERE)
    assert python_version(tmp_path / "python") is None


def test_a_python_without_its_venv_module_names_the_package(tmp_path):
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\necho 3 12\n')
    python.chmod(0o755)
    with pytest.raises(BootstrapError, match=r"sudo apt install python3\.12-venv"):
        bootstrap_python.check_can_make_environments(str(python))
    bootstrap_python.check_can_make_environments(sys.executable)


def test_the_second_call_does_nothing(course, steps):
    bootstrap.bootstrap({"test"}, None, None)
    bootstrap.bootstrap(set(), None, None)
    assert steps == []


def test_a_further_extra_keeps_those_installed(course, steps):
    write_stamp(course, extras=["cluster"])
    bootstrap.bootstrap({"test"}, None, None)
    assert steps == ["torch cpu", ".[cluster,test]"]
    assert bootstrap.read_stamp()["extras"] == ["cluster", "test"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_into_the_same_environment(course, steps, name):
    with (course / name).open("a") as file:
        file.write("# changed\n")
    bootstrap.bootstrap(set(), None, None)
    assert steps == ["torch cpu", ".[test]"]
    bootstrap.bootstrap({"test"}, None, None)
    assert len(steps) == 2


def test_an_interrupted_installation_is_continued(course, steps, monkeypatch):
    bootstrap.STAMP.unlink()

    def interrupted(build):
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(bootstrap, "install_torch", interrupted)
        assert bootstrap.main([]) == 130
    assert bootstrap.main([]) == 0
    assert steps == ["torch cpu", "."]  # the environment itself was kept


@pytest.mark.parametrize("damage", ["copied", "moved", "python gone", "pip gone"])
def test_an_environment_that_does_not_work_is_made_anew(course, steps, damage):
    if damage == "copied":
        write_stamp(course, folder="/elsewhere")
        write_pip(bootstrap.VENV, says="/elsewhere/.venv")
    elif damage == "moved":
        write_stamp(course, folder="/elsewhere")
        (bootstrap.VENV / "bin" / "pip").write_text("#!/elsewhere/.venv/bin/python\n")
    elif damage == "python gone":
        (bootstrap.VENV / "bin" / "python").unlink()
    else:
        bootstrap.STAMP.unlink()
        (bootstrap.VENV / "bin" / "pip").unlink()
    bootstrap.bootstrap(set(), None, None)
    assert steps == ["venv", "torch cpu", "."]


def test_another_build_of_torch_or_another_python_is_made_anew(course, steps, tmp_path):
    bootstrap.bootstrap(set(), None, "cpu")
    bootstrap.bootstrap(set(), sys.executable, None)
    assert steps == []
    bootstrap.bootstrap(set(), None, "cuda")
    assert steps == ["venv", "torch cuda", "."]
    with pytest.raises(BootstrapError, match="no-such-python"):
        bootstrap.bootstrap(set(), "no-such-python", None)


def test_the_build_of_torch_follows_the_gpu(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(bootstrap, "has_nvidia_gpu", lambda: True)
    assert (bootstrap.choose_torch(None), bootstrap.choose_torch("cpu")) == ("cuda", "cpu")
    monkeypatch.setattr(bootstrap, "has_nvidia_gpu", lambda: False)
    assert (bootstrap.choose_torch(None), bootstrap.choose_torch("cuda")) == ("cpu", "cuda")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert bootstrap.choose_torch(None) == "plain"


@pytest.mark.parametrize(
    ("said", "num_calls"),
    [("ERROR: No matching distribution found for torch==2.13.0+cpu", 2), ("NewConnectionError: no route", 1)],
)
def test_the_cpu_build_is_looked_for_elsewhere_only_if_it_is_not_here(course, monkeypatch, said, num_calls):
    calls = []

    def fails_without_index(*arguments, pins):
        assert "torch==" not in (course / pins).read_text()
        calls.append(arguments)
        if bootstrap.TORCH_CPU_INDEX not in arguments:
            raise PipError(said)

    monkeypatch.setattr(bootstrap, "pip_install", fails_without_index)
    if num_calls == 1:
        with pytest.raises(PipError):
            bootstrap.install_torch("cpu")
    else:
        bootstrap.install_torch("cpu")
    assert len(calls) == num_calls and all(call[0] == "torch==2.13.0+cpu" for call in calls)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("WARNING: Retrying\nFailed to establish: NewConnectionError\nERROR: No matching distribution", "the network"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("OSError: [Errno 13] Permission denied", "not writable"),
        ("connection broken by 'NewConnectionError(': /whl/cpu/torch/", "make lab TORCH=cuda"),
        ("ERROR: No matching distribution found for torch==2.13.0", "make lab PYTHON="),
    ],
)
def test_a_failed_pip_is_explained(said, advice):
    noise = "WARNING: Location 'x' is ignored: it is neither a file nor a directory."
    text = bootstrap.explain(PipError("\n".join([*"abcdefgh", noise, said])))
    assert advice in text and said.splitlines()[-1] in text and "run the same command again" in text
    assert "  | b" not in text and "ignored" not in text


def copy_of_installer(folder: Path) -> Path:
    (folder / "tools").mkdir(parents=True)
    for name in ("tools/bootstrap.py", "tools/bootstrap_python.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder / "tools" / "bootstrap.py"


def run_installer(script: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(script.parent)}
    return subprocess.run(
        [python, str(script), "--torch", "cpu"],
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_without_packages_it_fails_shortly_and_can_go_on(tmp_path):
    script = copy_of_installer(tmp_path / "ü path" / "dtlearn copy")
    done = run_installer(script)
    assert done.returncode == 1
    assert "[1/3] making .venv" in done.stdout and "[2/3] installing torch" in done.stdout
    assert "No matching distribution found for torch==2.13.0+cpu" in done.stderr and "make lab PYTHON=" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) < 15
    assert not (script.parents[1] / ".venv" / "dtlearn-bootstrap.json").exists()
    assert "[1/3] .venv is there" in run_installer(script).stdout


def test_a_complete_environment_costs_no_time(course):
    script = copy_of_installer(course / "dtlearn")
    shutil.copytree(bootstrap.VENV, course / "dtlearn" / ".venv", symlinks=True)
    stamp = {**bootstrap.read_stamp(), "folder": str(course / "dtlearn")}
    (course / "dtlearn" / ".venv" / "dtlearn-bootstrap.json").write_text(json.dumps(stamp))
    start = time.monotonic()
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert time.monotonic() - start < 2  # 0.1 s on an idle machine
    assert done.stdout == done.stderr == ""


def test_an_unwritable_folder_is_said(tmp_path, monkeypatch, capsys):
    def denied(*arguments):
        raise PermissionError(13, "Permission denied", "/course/.venv")

    monkeypatch.setattr(bootstrap, "bootstrap", denied)
    assert bootstrap.main([]) == 1
    assert "writable for you" in capsys.readouterr().err
