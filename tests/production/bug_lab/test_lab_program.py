"""The programs as data: their texts, their listings, and where they come from."""

import ast
import re
from pathlib import Path

import pytest

from dtlearn.production import bug_lab
from dtlearn.production.bug_lab import CAUSES, PROGRAMS
from dtlearn.production.bug_lab.lab_program import SYMPTOMS

each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=lambda program: program.name)


@each_program
def test_a_program_is_short_and_stands_for_itself(program):
    tree = ast.parse(program.text)
    lines = program.text.splitlines()
    assert 15 <= len(lines) <= 40 and max(map(len, lines)) <= 100
    assert ast.get_docstring(tree)
    assert "main" in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    imported = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported <= {"torch", "threading", "time"}  # nothing of the package: all of it can be seen


@each_program
def test_a_program_comes_from_a_public_project(program):
    assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+/(pull|issues)/\d+", program.link)
    assert 2016 <= program.year <= 2026 and program.symptom in SYMPTOMS
    assert 2 <= program.world_size <= 4
    assert program.report.endswith((".", "]]."))


def test_each_file_is_a_program_and_no_two_have_one_source():
    files = {file.stem for file in (Path(bug_lab.__file__).parent / "programs").glob("[!_]*.py")}
    assert files == set(PROGRAMS)
    assert len({program.link for program in PROGRAMS.values()}) == len(PROGRAMS)


def test_a_listing_has_the_numbers_of_its_lines():
    program = PROGRAMS["sharded_save"]
    listed = program.listing().splitlines()
    assert listed[0] == '  1  """Train with sharded weights, and save all of them after every step."""'
    assert [int(line[:3]) for line in listed] == list(range(1, len(program.text.splitlines()) + 1))


def test_a_cause_is_a_name_and_a_clause():
    assert 14 <= len(CAUSES) <= 16
    assert all(re.fullmatch(r"[a-z ]+", name) and not words.endswith(".") for name, words in CAUSES.items())
