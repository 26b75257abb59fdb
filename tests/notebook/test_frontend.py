import os

import pytest

from dtlearn.notebook.frontend import is_live, show_timing

LAB = {"JPY_SESSION_NAME": "notebooks/ch01_ranks.ipynb"}


@pytest.mark.parametrize(
    "environ",
    [
        LAB,
        {"VSCODE_PID": "1"},
        {"COLAB_RELEASE_TAG": "x"},
        {"DTLEARN_HEADLESS": "0"},
        LAB | {"CI": "false"},
        {"DTLEARN_HEADLESS": "0", "CI": "true", "PYTEST_VERSION": "9"},  # 0 forces live even in CI
    ],
)
def test_live(environ, monkeypatch):
    monkeypatch.setattr(os, "environ", environ)
    assert is_live()


@pytest.mark.parametrize(
    "environ",
    [
        {},  # nbclient, nbconvert, a plain script
        LAB | {"DTLEARN_HEADLESS": "1"},
        LAB | {"CI": "true"},
        LAB | {"PYTEST_VERSION": "9.2.0"},  # nbval, started from a notebook
    ],
)
def test_headless(environ, monkeypatch):
    monkeypatch.setattr(os, "environ", environ)
    assert not is_live()


def test_headless_output_does_not_depend_on_the_time(capsys):
    for seconds in (0.001, 5.0):
        show_timing("4 ranks start", seconds)
    assert capsys.readouterr().out.splitlines() == ["4 ranks start: (measured when you run this cell)"] * 2


def test_live_output_has_the_numbers(capsys, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    show_timing("4 ranks start", 0.0521)
    assert capsys.readouterr().out == "4 ranks start: 52.1 ms\n"
