"""The manifest of the course, `course.toml`, as data: chapters, exercises, and where their files lie.

Everything that lists chapters (the command, the builders, the grader, the tests) reads them here.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

MANIFEST = "course.toml"
NUM_HINTS = 3
_FEW = 10  # exercises that are all named where one is unknown

Status = Literal["ready", "planned"]
Quantity = Literal["bytes", "messages", "peak_bytes", "bubble"]
Tier = Literal["good", "optimal"]  # "correct", the first tier, has no limit

# Kind of a field, as it is named in a message -> does a value belong to it?
_TEXT, _NUMBER, _TABLE = "a text", "a whole number of 1 or more", "a table"
_TEXTS, _NUMBERS, _TABLES = "a list of texts", "a list of whole numbers of 1 or more", "a list of tables"
_IS: dict[str, Callable[[Any], bool]] = {
    _TEXT: lambda value: isinstance(value, str) and bool(value.strip()),
    _NUMBER: lambda value: type(value) is int and value >= 1,  # not bool, which is an int
    _TABLE: lambda value: isinstance(value, dict),
    _TEXTS: lambda value: isinstance(value, list) and all(map(_IS[_TEXT], value)),
    _NUMBERS: lambda value: isinstance(value, list) and all(map(_IS[_NUMBER], value)),
    _TABLES: lambda value: isinstance(value, list) and all(map(_IS[_TABLE], value)),
}


@dataclass(frozen=True)
class Exercise:
    """One exercise: one function or class in one file.

    Attributes:
        id: "ch03.average_gradients".
        title: what the learner makes.
        points: 1 or more.
        world_sizes: numbers of ranks that it is graded with.
        hints: from a nudge to nearly the answer.
        budget: limit of a quantity for a tier, as a number or a formula; {} if only correctness counts.
        after: ids of exercises to do first.
    """

    id: str
    title: str
    points: int
    world_sizes: tuple[int, ...]
    hints: tuple[str, ...]
    budget: dict[Quantity, dict[Tier, int | float | str]] = field(default_factory=dict)
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of its file and of what it defines: "average_gradients"."""
        return self.id.partition(".")[2]


@dataclass(frozen=True)
class Chapter:
    """One chapter.

    Attributes:
        slug: "ch03_data_parallel"; see the paths below.
        title, question: for lists and headings.
        builds_on: slugs of earlier chapters.
        minutes: for a reader who runs everything and does the exercises.
        core_minutes: of these, on the core path; 0: the chapter has none yet.
        ranks: the most ranks that its cells start.
        status: "ready" or "planned"; a planned chapter has no files.
        exercises: in the order of the chapter.
    """

    slug: str
    title: str
    question: str
    builds_on: tuple[str, ...]
    minutes: int
    ranks: int
    status: Status
    exercises: tuple[Exercise, ...] = ()
    core_minutes: int = 0

    @property
    def number(self) -> int:
        return int(self.slug[2:4])

    @property
    def ready(self) -> bool:
        return self.status == "ready"

    @property
    def notebook(self) -> Path:
        """The built notebook, relative to the course's folder."""
        return Path("notebooks", f"{self.slug}.ipynb")

    @property
    def source(self) -> Path:
        """What the notebook is built from, relative to the course's folder."""
        return Path("notebooks", "src", f"{self.slug}.py")

    @property
    def images(self) -> Path:
        """Folder of its figures, relative to the course's folder."""
        return Path("images", self.slug)


@dataclass(frozen=True)
class Course:
    """All chapters, in order, and the folder that holds them."""

    root: Path
    chapters: tuple[Chapter, ...]

    def chapter(self, name: str) -> Chapter:
        """The chapter with that slug, or with its short form "ch03". Raises ValueError if there is none."""
        for chapter in self.chapters:
            if name in (chapter.slug, chapter.slug[:4]):
                return chapter
        raise ValueError(f"there is no chapter {name!r}; the chapters are {', '.join(c.slug for c in self.chapters)}")

    def exercise(self, id: str) -> Exercise:
        """The exercise with that id. Raises ValueError if there is none."""
        known = [exercise for chapter in self.chapters for exercise in chapter.exercises]
        for exercise in known:
            if exercise.id == id:
                return exercise
        raise ValueError(f"there is no exercise {id!r}; {self._what_there_is(id)}")

    def _what_there_is(self, id: str) -> str:
        """What somebody meant who asked for this exercise, or what they can ask for."""
        prefix, _, name = id.partition(".")
        own = next((c.exercises for c in self.chapters if prefix in (c.slug, c.slug[:4])), ())
        everywhere = [exercise for chapter in self.chapters for exercise in chapter.exercises]
        same = [exercise.id for exercise in everywhere if exercise.name == (name or prefix)]
        close = difflib.get_close_matches(name or prefix, [e.name for e in own or everywhere], n=2, cutoff=0.7)
        if meant := same or [e.id for e in own or everywhere if e.name in close]:
            return f"did you mean {' or '.join(meant)}?"
        if own:
            return f"the exercises of {own[0].id.partition('.')[0]} are {', '.join(e.id for e in own)}"
        if len(everywhere) <= _FEW:
            return f"the exercises are {', '.join(e.id for e in everywhere) or '(none)'}"
        there = ", ".join(c.slug[:4] for c in self.chapters if c.exercises)
        return (
            f"an exercise is called {everywhere[0].id}, say; those of a chapter: `dtlearn progress CHAPTER` ({there})"
        )


def find_root() -> Path:
    """The folder of the course: the one with this package, else the working directory or the nearest above it.

    Raises:
        ValueError: neither holds a manifest, as when the package was installed without the course.
    """
    beside_package = Path(__file__).resolve().parents[1]
    here = Path.cwd()
    for folder in (beside_package, here, *here.parents):
        if (folder / MANIFEST).is_file():
            return folder
    raise ValueError(f"no {MANIFEST} in {here} or above it: change to the folder that you cloned the course into")


def load_course(root: Path | None = None) -> Course:
    """Read and check the manifest in `root` (default: `find_root()`).

    Raises:
        ValueError: it cannot be read, or an entry is wrong; the text names the chapter or exercise and the field.
    """
    root = find_root() if root is None else root
    try:
        text = (root / MANIFEST).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{root / MANIFEST} cannot be read: {error.strerror}") from error
    return Course(root, parse_chapters(text))


def parse_chapters(text: str) -> tuple[Chapter, ...]:
    """The chapters of a manifest's text. Raises ValueError as `load_course` does."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{MANIFEST}: not valid TOML: {error}") from error
    _check_fields(MANIFEST, data, required={"chapter": _TABLES})
    chapters: list[Chapter] = []
    for number, table in enumerate(data["chapter"], start=1):
        chapters.append(_chapter(number, table, chapters))
    return tuple(chapters)


def _chapter(number: int, table: dict[str, Any], earlier: list[Chapter]) -> Chapter:
    where = f"{MANIFEST}: {table.get('slug') or f'chapter {number}'}"
    texts = dict.fromkeys(("slug", "title", "question", "status"), _TEXT)
    required = {**texts, "builds_on": _TEXTS, "minutes": _NUMBER, "ranks": _NUMBER}
    _check_fields(where, table, required, optional={"exercise": _TABLES, "core_minutes": _NUMBER})
    slug = table["slug"]
    _require(re.fullmatch(r"ch\d\d_[a-z][a-z0-9_]*", slug), where, "slug", "must look like ch03_data_parallel")
    _require(int(slug[2:4]) == number, where, "slug", f"must begin with ch{number:02}: it is chapter {number}")
    _require(table["status"] in get_args(Status), where, "status", f"must be one of {get_args(Status)}")
    for other in table["builds_on"]:
        _require(other in [chapter.slug for chapter in earlier], where, "builds_on", f"{other!r} is no earlier chapter")
    known = [exercise.id for chapter in earlier for exercise in chapter.exercises]
    exercises: list[Exercise] = []
    for exercise_table in table.get("exercise", []):
        exercises.append(_exercise(where, slug, exercise_table, known))
        known.append(exercises[-1].id)
    fields = {name: value for name, value in table.items() if name not in ("builds_on", "exercise")}
    return Chapter(**fields, builds_on=tuple(table["builds_on"]), exercises=tuple(exercises))


def _exercise(where: str, slug: str, table: dict[str, Any], earlier: list[str]) -> Exercise:
    where = f"{where}: exercise {table.get('id') or '(no id)'}"
    required = {"id": _TEXT, "title": _TEXT, "points": _NUMBER, "world_sizes": _NUMBERS, "hints": _TEXTS}
    _check_fields(where, table, required, optional={"budget": _TABLE, "after": _TEXTS})
    is_id = re.fullmatch(rf"{slug[:4]}\.[a-z][a-z0-9_]*", table["id"])
    _require(is_id, where, "id", f"must look like {slug[:4]}.average_gradients")
    _require(table["id"] not in earlier, where, "id", "is used twice")
    sizes = table["world_sizes"]
    _require(sizes and sizes == sorted(set(sizes)), where, "world_sizes", "must hold at least one size, in order")
    _require(len(table["hints"]) == NUM_HINTS, where, "hints", f"must be {NUM_HINTS}, not {len(table['hints'])}")
    for other in table.get("after", []):
        _require(other in earlier, where, "after", f"{other!r} is no earlier exercise")
    for quantity, tiers in table.get("budget", {}).items():
        name = f"budget.{quantity}"
        _require(quantity in get_args(Quantity), where, name, f"must be one of {get_args(Quantity)}")
        _require(_IS[_TABLE](tiers) and tiers, where, name, "must be a table with at least one tier")
        for tier, limit in tiers.items():
            _require(tier in get_args(Tier), where, f"{name}.{tier}", f"must be one of {get_args(Tier)}")
            is_limit = type(limit) in (int, float) or _IS[_TEXT](limit)
            _require(is_limit, where, f"{name}.{tier}", f"must be a number or a formula, not {limit!r}")
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    return Exercise(**fields)


def _check_fields(
    where: str, table: dict[str, Any], required: dict[str, str], optional: dict[str, str] | None = None
) -> None:
    """Every required field is there, no other one, and each is of its kind."""
    known = {**required, **(optional or {})}
    for name in required:
        _require(name in table, where, name, "is missing")
    for name, value in table.items():
        _require(name in known, where, name, f"is not a field; the fields are {', '.join(known)}")
        _require(_IS[known[name]](value), where, name, f"must be {known[name]}, not {value!r}")


def _require(condition: object, where: str, field_name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"{where}: {field_name} {what}")
