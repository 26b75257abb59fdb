"""docs/sources.md names chapters that the course has, says which are ready, and is right about this torch."""

import importlib.util
import re

import pytest
import torch

from dtlearn.course import load_course
from tests.guides import ROOT

PAGE = (ROOT / "docs" / "sources.md").read_text("utf-8")
ROWS = [line.strip("| \n").split(" | ") for line in PAGE.splitlines() if re.match(r"\| (?!claim|---)", line)]


def test_each_claim_has_its_source_a_verdict_and_chapters_of_the_course():
    numbers = {int(chapter.slug[2:4]) for chapter in load_course(ROOT).chapters}
    assert len(ROWS) > 80
    for claim, source, verdict, chapters in ROWS:
        assert claim.endswith(".") or claim.endswith("`."), claim
        assert set(source.split(", ")) <= {"A", "B", "C", "D"} and len(verdict) > 5
        assert chapters == "-" or {int(c) for c in chapters.split(", ")} <= numbers, claim


def test_it_says_which_chapters_are_ready():
    *others, last = [str(int(chapter.slug[2:4])) for chapter in load_course(ROOT).chapters if chapter.ready]
    assert f"Chapters {', '.join(others)} and {last} are ready; the others are planned" in PAGE


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("torch.distributed.pipeline", False),
        ("torch.distributed.pipelining", True),
        ("torch.distributed._tensor", True),
        ("torch.distributed.tensor", True),
    ],
)
def test_modules_of_torch_are_as_it_says(name, exists):
    assert (importlib.util.find_spec(name) is not None) == exists
    assert name in PAGE or name in ("torch.distributed.pipeline",)


def test_there_is_no_distributed_dataloader():
    assert not hasattr(torch.utils.data, "DistributedDataLoader")
    assert not hasattr(torch.utils.data.distributed, "DistributedDataLoader")
