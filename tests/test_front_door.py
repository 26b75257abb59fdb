"""`import dtlearn` is quick and gives every name that notebooks use."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dtlearn


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh Python holds after `code`."""
    program = f"import sys\n{code}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


def test_importing_loads_neither_torch_nor_the_notebook():
    loaded = loaded_by("import dtlearn, dtlearn.runtime.record.record\ndtlearn.device")
    assert {"dtlearn.runtime.device", "dtlearn.runtime.record.record"} <= loaded
    assert not {"torch", "numpy", "matplotlib", "IPython", "zmq", "dtlearn.notebook"} & loaded


def test_the_version_is_the_one_of_pyproject():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    assert dtlearn.__version__ == project["project"]["version"]


def test_loading_the_extension_does_not_wait_for_torch():
    assert "torch" not in loaded_by("import dtlearn.notebook.magics")


@pytest.mark.parametrize("name", dtlearn.__all__)
def test_every_name_is_there_under_its_own_name(name):
    thing = getattr(dtlearn, name)
    assert callable(thing)
    assert thing.__module__ == f"dtlearn.{dtlearn._HOME[name]}"
    assert getattr(thing, "__name__", name) == name


def test_the_list_of_names_is_complete():
    assert sorted(dtlearn.__all__) == sorted(dtlearn._HOME)


def test_an_unknown_name_is_refused_as_python_does():
    with pytest.raises(AttributeError, match="module 'dtlearn' has no attribute 'runranks'"):
        dtlearn.runranks  # noqa: B018
