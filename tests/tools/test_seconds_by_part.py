import pytest
from seconds_by_part import Test, chapters, read, table

JUNIT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.viz.test_style" name="test_colors" time="1.0" />
<testcase classname="tests.runtime.lab.head.test_agent.TestLost" name="test_it[1]" time="60.5"><failure /></testcase>
<testcase classname="tests.runtime.test_run" name="test_it" time="10.5" />
<testcase classname="tests.course.test_exercises" name="test_the_stub_is_not_attempted[ch02.broadcast]" time="2.0" />
<testcase classname="tests.collectives.test_plan" name="test_it" time="4.0" />
<testcase classname="notebooks.ch02_collectives.ipynb" name="Cell 0" time="20.0" />
<testcase classname="tests.test_size" name="test_files" time="2.0" />
<testcase classname="tests.test_course" name="test_a_slug[ch07_mixed]" />
</testsuite></testsuites>"""


def test_seconds_stand_by_folder_and_by_chapter(tmp_path):
    (tmp_path / "junit.xml").write_text(JUNIT)
    lines = table(read(tmp_path / "junit.xml"), ["ch02_collectives", "ch03_data_parallel"]).splitlines()
    assert [line.split() for line in lines if "of these" not in line] == [
        ["seconds", "share", "tests"],
        ["60.5", "60.5%", "1", "tests/runtime/lab"],  # a large part is shown by its folders
        ["20.0", "20.0%", "1", "notebooks/ch02_collectives"],
        ["10.5", "10.5%", "1", "tests/runtime"],
        ["4.0", "4.0%", "1", "tests/collectives"],
        ["2.0", "2.0%", "1", "tests/course"],
        ["2.0", "2.0%", "2", "tests"],
        ["1.0", "1.0%", "1", "tests/viz"],
        ["26.0", "26.0%", "3", "ch02"],  # the notebook, an exercise, the package
    ]


@pytest.mark.parametrize(
    ("file", "name", "chapter"),
    [
        ("tests.course.test_right_answers", "test_it[ch03_data_parallel-bug_hunt-other]", "ch03"),
        ("tests.course.test_ch03_checks", "test_it", "ch03"),
        ("tests.data_parallel.samples.test_sampler", "test_it", "ch03"),
        ("tests.viz.collectives.test_collective_steps", "test_it", ""),
        ("tests.runtime.test_run", "test_it[watch03.x]", ""),
        ("tests.test_course", "test_a_slug[ch07_mixed]", ""),  # there is no such chapter
    ],
)
def test_a_test_belongs_to_a_chapter_by_its_folder_or_its_name(file, name, chapter):
    assert Test(file, name, 1.0).chapter({"data_parallel": "ch03", "collectives": "ch02"}) == chapter


def test_nothing_that_ran_is_an_empty_table():
    assert table([], []) == "  seconds  share  tests"


def test_the_chapters_are_those_with_a_notebook(tmp_path):
    (tmp_path / "notebooks" / "src").mkdir(parents=True)
    (tmp_path / "notebooks" / "ch01_ranks.ipynb").touch()
    (tmp_path / "notebooks" / "src" / "ch02_collectives.ipynb").touch()
    assert chapters(tmp_path) == ["ch01_ranks"]
