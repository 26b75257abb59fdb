"""Libraries are known by what they are: tried with packages that lie where module systems of clusters put them."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import ipykernel
import pytest
import torch

from dtlearn.runtime.faults import stacks
from dtlearn.runtime.faults.libraries import is_library

PACKAGES = Path(torch.__file__).parents[1]


@pytest.mark.parametrize(
    "file",
    [
        torch.__file__,
        ipykernel.__file__,
        os.__file__,
        stacks.__file__,
        f"{sysconfig.get_path('scripts')}/torchrun",
        # of another machine, or of a user's site
        "/home/x/.local/lib/python3.11/site-packages/tornado/ioloop.py",
        "/usr/lib/python3/dist-packages/zmq/eventloop.py",
        "/apps/pytorch/2.13/lib64/python3.12/threading.py",
        "/opt/python/lib/python3.13t/asyncio/runners.py",
        "C:\\Python\\Lib\\site-packages\\torch\\__init__.py",
        "<frozen runpy>",
        "<string>",
    ],
)
def test_libraries(file):
    assert is_library(file)


@pytest.mark.parametrize(
    "file",
    [
        f"{sys.prefix}/src/train.py",  # a container's /usr/src/app, where /usr is Python's prefix
        f"{sys.base_prefix}/share/course/train.py",
        f"{sysconfig.get_path('scripts')}2/train.py",
        "/home/x/my_site-packages/train.py",
        "/home/x/python3.11/train.py",
        "/tmp/ipykernel_12/345.py",
    ],
)
def test_learners_code(file):
    assert not is_library(file)


def test_packages_without_a_folder_of_that_name_are_known_by_torch(tmp_path):
    """As `pip install --target` makes them: an own process, which has only that torch."""
    for name in ("torch", "tornado"):
        (tmp_path / "libs" / name).mkdir(parents=True)
        (tmp_path / "libs" / name / "__init__.py").write_text("")
    source = Path(stacks.__file__).with_name("libraries.py").read_text("utf-8")
    code = source + "\nimport sys; print(*[is_library(file) for file in sys.argv[1:]])"
    files = [str(tmp_path / "libs" / name / "__init__.py") for name in ("torch", "tornado")]

    def libraries():
        command = [sys.executable, "-c", code.replace("__file__", "'/x/y/z/libraries.py'"), *files]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "libs")}
        return subprocess.run(command, env=environment, text=True, capture_output=True, check=True).stdout.split()

    assert libraries() == ["True", "False"]  # a build from source: beside it may lie anything
    (tmp_path / "libs" / "torch-2.13.0.dist-info").mkdir()
    assert libraries() == ["True", "True"]
