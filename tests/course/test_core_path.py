"""Each chapter begins with a core path for an evening, and says honestly how long it takes."""

import re
from pathlib import Path

import nbformat
import pytest

from dtlearn.course import load_course
from tools.chapter_size import sizes

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = [chapter for chapter in load_course(ROOT).chapters if chapter.ready]
ROW = re.compile(r"^# \| (?P<title>.+?) \| .+ \| (?P<minutes>[^|]+) \|$", re.MULTILINE)


def head(chapter):
    """The rows of the table of the core path: (title, minutes, exercises)."""
    source = (ROOT / "notebooks" / "src" / f"{chapter.slug}.py").read_text(encoding="utf-8")
    table = source.partition("| core path | what | minutes |\n# |---|---|---|\n")[2].partition("\n#\n")[0]
    rows = []
    for row in ROW.finditer(table + "\n"):
        reading, _, doing = row["minutes"].partition(", and exercise")
        exercises, _, minutes = doing.partition(": ")
        rows.append((row["title"], int(reading) + int(minutes or 0), re.findall(r"\d+", exercises)))
    return source, rows


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_the_head_lists_the_core_path_with_its_minutes(chapter):
    source, rows = head(chapter)
    assert rows, "the head needs a table '| core path | what | minutes |'"
    assert sum(minutes for _, minutes, _ in rows) == chapter.core_minutes <= chapter.minutes
    core = source.partition("\n# # The core path\n")[2].partition("\n# # Further\n")[0]
    assert re.findall(r"^# ## (.+)$", core, re.MULTILINE) == [title for title, _, _ in rows]
    exercises = [number for _, _, numbers in rows for number in numbers]
    tasks = re.findall(r"^# \*\*Exercises? ([^*]+)\*\*", core, re.MULTILINE)
    assert re.findall(r"\d+", " ".join(tasks)) == exercises
    assert f"{chapter.core_minutes} minutes for the core path" in source.replace("\n# ", " ")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_the_core_path_is_for_an_evening(chapter):
    """The aims are 75 minutes, 2,500 words, 20 visible cells and 3 exercises."""
    core, whole = sizes(nbformat.read(ROOT / chapter.notebook, as_version=4))
    assert chapter.core_minutes <= 80 and core.words <= 3200 and core.visible_cells <= 24
    assert 2 <= core.exercises <= 3 and whole.exercises == len(chapter.exercises)
