"""What is installed: pyproject.toml, constraints.txt and environment.yml agree with each other and with the code."""

import ast
import re
import sys
import tomllib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec

from tests.statements import statements

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
BASE = [Requirement(line) for line in PROJECT["dependencies"]]
TEST = [Requirement(line) for line in EXTRAS["test"]]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
CONDA_SPECS = [entry for entry in CONDA["dependencies"] if isinstance(entry, str)]
PIP_LINES = next(entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict))


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert len({canonicalize_name(name) for name, _ in pins}) == len(pins)
    return {canonicalize_name(name): version for name, version in pins}


PINS = read_pins()


def test_conda_brings_python_and_pip_only():
    assert CONDA["name"] == "dtlearn"
    assert CONDA["channels"] == ["conda-forge"]
    names = [MatchSpec(spec).name.normalized for spec in CONDA_SPECS]
    assert names == ["python", "pip"]


def test_conda_takes_a_python_that_the_project_takes():
    python = MatchSpec(CONDA_SPECS[0])
    assert f"{PROJECT['requires-python']}," in str(python.version) + ","


def test_every_pip_line_of_conda_means_something():
    assert PIP_LINES == ["-c constraints.txt", "-e .[test]"]
    assert (ROOT / "constraints.txt").is_file()
    assert "test" in EXTRAS


@pytest.mark.parametrize("requirement", BASE + TEST, ids=lambda requirement: requirement.name)
def test_what_the_project_names_is_pinned_within_its_range(requirement):
    assert requirement.specifier, "a range says what should work"
    assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


def test_torch_is_pinned_for_both_builds():
    assert PINS["torch"] == "2.13.0"
    assert Version("2.13.0+cpu") in SpecifierSet(f"=={PINS['torch']}")


def test_whatever_is_installed_with_it_is_pinned():
    todo, seen = [*BASE, *TEST], set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        if key not in seen:
            seen.add(key)
            needs = map(Requirement, metadata.requires(requirement.name) or ())
            todo += [need for need in needs if applies(need, requirement.extras)]
    # CUDA's own parts are pinned exactly by the torch that needs them.
    missing = {name for name, *_ in seen if name not in PINS and not re.match("nvidia-|cuda-|triton", name)}
    assert not missing, "put them into constraints.txt: make pins"


def refusing(python: Version, requires: dict[str, str | None]) -> dict[str, str]:
    """The packages that do not take this Python, with what they say of the Pythons that they take."""
    return {name: words for name, words in requires.items() if words and python not in SpecifierSet(words)}


def requires_python(name: str) -> str | None:
    """The Pythons that an installed package says it takes; None if it says nothing, or is not for this system."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.metadata(name).get("Requires-Python")
    return None


def test_every_pin_takes_the_oldest_python_of_the_project():
    """Where a pin does not take it, there is nothing to install, and the pip of Debian 12 (23.0) searches for ever."""
    oldest = Version(PROJECT["requires-python"].removeprefix(">=") + ".0")
    assert not refusing(oldest, {name: requires_python(name) for name in PINS}), "pin an older one of these"


def test_a_pin_that_wants_a_newer_python_is_found():
    assert requires_python("pytest")
    said = {"new": ">=3.11.5", "not this one": "!=3.11.0,>=3.9", "old": ">=3.11", "silent": None}
    assert set(refusing(Version("3.11.0"), said)) == {"new", "not this one"}


def applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})


def imported_packages(folder: Path) -> dict[str, str]:
    """Top-level packages that files under `folder` import: {package: one of the files}."""
    found = {}
    for file in folder.rglob("*.py"):
        for node in statements(file.read_text("utf-8")):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            else:
                continue
            found |= {name.split(".")[0]: str(file.relative_to(folder.parent)) for name in names}
    return found


# Used where a learner has installed them, and not asked for: dtlearn/bench compares with the one's ranks, and chapter
# 15 runs the other in an environment of its own.
WHERE_INSTALLED = {"deepspeed", "ipyparallel"}


brought_by = cache(metadata.packages_distributions)  # reads what every installed distribution says of itself


def undeclared(folder: Path, declared: list[Requirement]) -> list[str]:
    """Packages imported under `folder` that no declared requirement brings: "package (file)"."""
    own = {"dtlearn", "tests", "tools", *(file.stem for file in (ROOT / "tools").glob("*.py"))}
    allowed = {canonicalize_name(requirement.name) for requirement in declared}
    found = []
    for package, file in imported_packages(folder).items():
        brings = {canonicalize_name(name) for name in brought_by().get(package, ())}
        if package not in sys.stdlib_module_names | own | WHERE_INSTALLED and not brings & allowed:
            found.append(f"{package} ({file})")
    return found


@pytest.mark.parametrize("folder", ["dtlearn", "notebooks", "exercises", "solutions"])
def test_what_a_learner_runs_needs_no_extra(folder):
    assert not undeclared(ROOT / folder, BASE), "add it to `dependencies` in pyproject.toml"


@pytest.mark.parametrize("folder", ["tests", "tools"])
def test_what_a_maintainer_runs_is_declared(folder):
    assert not undeclared(ROOT / folder, BASE + TEST), "add it to the extra `test` in pyproject.toml"


def test_an_undeclared_import_is_found(tmp_path):
    (tmp_path / "late.py").write_text("import os, numpy\ndef late():\n    from yaml import load\n")
    assert undeclared(tmp_path, BASE) == [f"yaml ({tmp_path.name}/late.py)"]
