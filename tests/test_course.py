"""The manifest: its reader, and that the folders of the course hold exactly what it lists."""

from pathlib import Path

import pytest

from dtlearn import course as course_module
from dtlearn.course import MANIFEST, find_root, load_course, parse_chapters

COURSE = load_course()
READY = [chapter for chapter in COURSE.chapters if chapter.ready]

CHAPTER = """
[[chapter]]
slug = "ch01_ranks"
title = "Ranks"
question = "How?"
builds_on = []
minutes = 60
ranks = 4
status = "ready"
"""
EXERCISE = """
[[chapter.exercise]]
id = "ch01.start"
title = "Start them"
points = 2
world_sizes = [1, 2, 4]
budget = { bytes = { good = "2 * n", optimal = 8 } }
hints = ["a", "b", "c"]
"""
SECOND = CHAPTER.replace("ch01_ranks", "ch02_sums").replace("builds_on = []", 'builds_on = ["ch01_ranks"]')
AFTER = EXERCISE.replace("ch01.start", "ch02.sum") + 'after = ["ch01.start"]\n'


def test_the_manifest_lists_the_course():
    assert len(COURSE.chapters) == 17
    assert len({chapter.slug for chapter in COURSE.chapters}) == 17
    assert COURSE.chapters[0].slug == "ch01_ranks" and COURSE.chapters[0].ready
    assert COURSE.root == Path(__file__).resolve().parents[1]


def test_an_entry_is_read_in_full():
    first, second = parse_chapters(CHAPTER + EXERCISE + SECOND + AFTER)
    assert (first.number, first.title, first.minutes, first.ranks, first.ready) == (1, "Ranks", 60, 4, True)
    assert first.notebook == Path("notebooks/ch01_ranks.ipynb")
    assert first.source == Path("notebooks/src/ch01_ranks.py")
    assert first.images == Path("images/ch01_ranks")
    exercise = first.exercises[0]
    assert (exercise.id, exercise.name, exercise.points) == ("ch01.start", "start", 2)
    assert exercise.world_sizes == (1, 2, 4) and exercise.hints == ("a", "b", "c") and exercise.after == ()
    assert exercise.budget == {"bytes": {"good": "2 * n", "optimal": 8}}
    assert second.builds_on == ("ch01_ranks",)
    assert second.exercises[0].after == ("ch01.start",)


@pytest.mark.parametrize(
    ("text", "wrong", "message"),
    [
        ('slug = "ch01_ranks"', 'slug = "ranks"', "course.toml: ranks: slug must look like"),
        ('slug = "ch01_ranks"', 'slug = "ch02_ranks"', "slug must begin with ch01"),
        ('slug = "ch01_ranks"', "", "course.toml: chapter 1: slug is missing"),
        ('title = "Ranks"', 'title = " "', "ch01_ranks: title must be a text, not ' '"),
        ('title = "Ranks"', 'titel = "Ranks"', "ch01_ranks: title is missing"),
        ("ranks = 4", "ranks = 4\nlevel = 1", "ch01_ranks: level is not a field"),
        ("minutes = 60", "minutes = 0", "ch01_ranks: minutes must be a whole number"),
        ("minutes = 60", "minutes = true", "ch01_ranks: minutes must be a whole number"),
        ("builds_on = []", 'builds_on = ["ch02_sums"]', "builds_on 'ch02_sums' is no earlier chapter"),
        ('status = "ready"', 'status = "done"', "ch01_ranks: status must be one of"),
        ("[[chapter]]", "[[chapter]", "not valid TOML"),
        ("[[chapter]]", "[chapter]", "chapter must be a list of tables"),
        ('id = "ch01.start"', 'id = "start"', "exercise start: id must look like ch01."),
        ('id = "ch01.start"', 'id = "ch02.start"', "exercise ch02.start: id must look like ch01."),
        ("points = 2", 'points = "2"', "ch01_ranks: exercise ch01.start: points must be"),
        ("[1, 2, 4]", "[]", "world_sizes must hold at least one size"),
        ("[1, 2, 4]", "[2, 1]", "world_sizes must hold at least one size, in order"),
        ("[1, 2, 4]", "[0, 1]", "world_sizes must be a list of whole numbers"),
        ('"a", "b", "c"', '"a", "b"', "hints must be 3, not 2"),
        ("{ bytes =", "{ seconds =", "budget.seconds must be one of"),
        ('good = "2 * n"', 'fair = "2 * n"', "budget.bytes.fair must be one of"),
        ('good = "2 * n"', "good = true", "budget.bytes.good must be a number or a formula"),
        ('{ good = "2 * n", optimal = 8 }', "8", "budget.bytes must be a table"),
        ("points = 2", 'points = 2\nafter = ["ch01.stop"]', "after 'ch01.stop' is no earlier exercise"),
    ],
)
def test_a_wrong_entry_is_named(text, wrong, message):
    whole = CHAPTER + EXERCISE
    assert whole.count(text) == 1
    with pytest.raises(ValueError) as error:
        parse_chapters(whole.replace(text, wrong))
    assert message in str(error.value)


def test_an_id_is_used_once():
    with pytest.raises(ValueError, match=r"exercise ch01\.start: id is used twice"):
        parse_chapters(CHAPTER + EXERCISE + EXERCISE)


def test_lookups_name_what_there_is(tmp_path):
    (tmp_path / MANIFEST).write_text(CHAPTER + EXERCISE)
    course = load_course(tmp_path)
    assert course.chapter("ch01") is course.chapter("ch01_ranks") is course.chapters[0]
    assert course.exercise("ch01.start").title == "Start them"
    with pytest.raises(ValueError, match="no chapter 'ch9'; the chapters are ch01_ranks"):
        course.chapter("ch9")
    with pytest.raises(ValueError, match=r"no exercise 'x'; the exercises are ch01\.start"):
        course.exercise("x")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("ch07.nope", "the exercises of ch07 are ch07.master_weights, "),
        ("ch12_tensor_parallel.nope", "the exercises of ch12 are ch12.f_and_g, "),
        ("ch12", "the exercises of ch12 are "),
        ("ch12.row_paralel", "did you mean ch12.row_parallel?"),
        ("ch07.row_parallel", "did you mean ch12.row_parallel?"),
        ("row_parallel", "did you mean ch12.row_parallel?"),
        ("ch13.x", "an exercise is called ch01.who_am_i, say; those of a chapter: `dtlearn progress CHAPTER` (ch01, "),
        ("nope", "an exercise is called "),
    ],
)
def test_a_wrong_id_is_answered_with_what_is_near(asked, says):
    with pytest.raises(ValueError, match="there is no exercise") as caught:
        COURSE.exercise(asked)
    assert says in str(caught.value) and len(str(caught.value)) < 400
    prefix = asked[:4]
    if says.startswith("the exercises of"):
        assert all(name.startswith(prefix) for name in str(caught.value).partition(" are ")[2].split(", "))


def test_an_installed_package_finds_the_course_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(course_module, "__file__", str(tmp_path / "site-packages" / "dtlearn" / "course.py"))
    clone = tmp_path / "clone"
    (clone / "notebooks").mkdir(parents=True)
    monkeypatch.chdir(clone / "notebooks")
    with pytest.raises(ValueError, match="change to the folder that you cloned"):
        find_root()
    (clone / MANIFEST).write_text(CHAPTER)
    assert find_root() == clone


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"course\.toml cannot be read"):
        load_course(tmp_path)


@pytest.mark.parametrize("chapter", READY, ids=lambda chapter: chapter.slug)
def test_a_ready_chapter_has_its_files(chapter):
    assert (COURSE.root / chapter.source).is_file()
    assert (COURSE.root / chapter.notebook).is_file()
    assert list((COURSE.root / chapter.images).glob("*.svg"))
    for exercise in chapter.exercises:
        for folder in ("exercises", "solutions"):
            assert (COURSE.root / folder / chapter.slug / f"{exercise.name}.py").is_file()


def orphans(root: Path, slugs: set[str]) -> list[str]:
    """Chapter files and folders of the course that belong to no chapter in the manifest."""
    names = slugs | {slug.partition("_")[0] for slug in slugs}  # the answers of chNN_name are chNN.toml
    found = []
    for folder in ("notebooks", "notebooks/src", "notebooks/answers", "exercises", "solutions", "images"):
        for path in sorted((root / folder).glob("*")):
            is_hidden = path.name.startswith((".", "__")) or path.name in ("ruff.toml", "glossary.toml")
            name = path.relative_to(root).as_posix()
            allowed = names if folder == "notebooks/answers" else slugs
            if not is_hidden and name not in ("notebooks/src", "notebooks/answers") and path.stem not in allowed:
                found.append(name)
    return found


def test_every_file_belongs_to_a_chapter():
    assert not orphans(COURSE.root, {chapter.slug for chapter in COURSE.chapters})


def test_an_orphan_is_found(tmp_path):
    folders = (
        "notebooks/src",
        "notebooks/answers",
        "images/ch01_ranks",
        "images/ch01_old",
        "exercises/.ipynb_checkpoints",
    )
    for path in folders:
        (tmp_path / path).mkdir(parents=True)
    known = ("notebooks/src/ch01_ranks.py", "notebooks/ch01_ranks.ipynb", "notebooks/answers/ch01.toml")
    for path in (*known, "notebooks/Untitled.ipynb", "notebooks/answers/ch99.toml"):
        (tmp_path / path).touch()
    expected = ["notebooks/Untitled.ipynb", "notebooks/answers/ch99.toml", "images/ch01_old"]
    assert orphans(tmp_path, {"ch01_ranks"}) == expected
