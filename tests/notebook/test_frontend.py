import pytest

from dtlearn.notebook.frontend import is_live

LAB = {"JPY_SESSION_NAME": "notebooks/ch01_ranks.ipynb"}


@pytest.mark.parametrize(
    "environ",
    [LAB, {"VSCODE_PID": "1"}, {"COLAB_RELEASE_TAG": "x"}, {"DTLEARN_HEADLESS": "0"}, LAB | {"CI": "false"}],
)
def test_live(environ):
    assert is_live(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {},  # nbclient, nbconvert, a plain script
        LAB | {"DTLEARN_HEADLESS": "1"},
        LAB | {"CI": "true"},
        LAB | {"PYTEST_VERSION": "9.2.0"},  # nbval, started from a notebook
    ],
)
def test_headless(environ):
    assert not is_live(environ)


def test_zero_forces_live_even_in_ci():
    assert is_live({"DTLEARN_HEADLESS": "0", "CI": "true", "PYTEST_VERSION": "9"})


def test_default_is_this_process(monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    assert is_live()
    monkeypatch.setenv("DTLEARN_HEADLESS", "1")
    assert not is_live()
